"""Raft cores, their disks and a network in memory, under faults, on virtual time: `barnabas sim --kind quorum`."""
