"""This broker as a member of its cluster: registration, requests to the controller and to other brokers."""
