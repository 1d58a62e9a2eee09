"""The metadata quorum as this node runs it: its log and snapshots on disk, commands, and the image."""
