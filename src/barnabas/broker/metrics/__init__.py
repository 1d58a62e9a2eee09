"""What a node tells of itself (`--metrics`): loaded only where somebody asks for it."""
