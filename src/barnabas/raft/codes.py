"""Error codes and other numbers, apart from the messages, which a quorum of one does not load."""

from __future__ import annotations

from barnabas.core.errors import wire_error

NONE = 0
NOT_LEADER = wire_error("NOT_LEADER_OR_FOLLOWER").code
REQUEST_TIMED_OUT = wire_error("REQUEST_TIMED_OUT").code
UNSUPPORTED_VERSION = wire_error("UNSUPPORTED_VERSION").code
INVALID_REQUEST = wire_error("INVALID_REQUEST").code
FENCED_LEADER_EPOCH = wire_error("FENCED_LEADER_EPOCH").code
UNKNOWN_LEADER_EPOCH = wire_error("UNKNOWN_LEADER_EPOCH").code
INVALID_UPDATE_VERSION = wire_error("INVALID_UPDATE_VERSION").code
SNAPSHOT_NOT_FOUND = wire_error("SNAPSHOT_NOT_FOUND").code
POSITION_OUT_OF_RANGE = wire_error("POSITION_OUT_OF_RANGE").code
INVALID_VOTER_KEY = wire_error("INVALID_VOTER_KEY").code
DUPLICATE_VOTER = wire_error("DUPLICATE_VOTER").code
VOTER_NOT_FOUND = wire_error("VOTER_NOT_FOUND").code

UNKNOWN_OFFSET = -1
# in a Fetch of a version without the field: the replica's high watermark is unknown
UNSUPPORTED_HIGH_WATERMARK = (1 << 63) - 1
