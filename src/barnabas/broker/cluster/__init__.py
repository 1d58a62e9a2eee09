"""This broker as a member of its cluster: registration, calls to the controller, blocks of producer ids."""
