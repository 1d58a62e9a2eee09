"""Consensus on the metadata log: a synchronous core that is told what happened and says what to do."""
