"""What `doctor` looks at: this machine, a file of settings, a log directory, a running cluster."""
