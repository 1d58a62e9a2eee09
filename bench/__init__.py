"""Measurements. `python -m bench` runs them all; each module gives rows by `run(options)`."""
