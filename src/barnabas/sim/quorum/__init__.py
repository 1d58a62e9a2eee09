"""Raft cores, their disks and a network, under faults, on virtual time: `barnabas sim --kind quorum`."""
