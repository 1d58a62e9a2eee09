"""Whole nodes that form one cluster: controllers, brokers and admin clients, under faults."""
