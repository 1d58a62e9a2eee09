"""Settings of a running broker: current values, changes and their rules, and levels of loggers."""
