"""The metadata quorum on this node: its log and snapshots on disk, the controller's commands, and the
image."""
