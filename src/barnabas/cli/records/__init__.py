"""Records on their way between a cluster and a terminal, a file or a pipe: for `produce` and `consume`."""
