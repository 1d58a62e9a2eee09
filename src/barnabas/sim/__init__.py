"""The simulator: production code in one process under virtual time, with faults, from a seed."""
