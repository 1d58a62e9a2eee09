"""The controller: what may happen to a cluster, decided from its image and told as metadata records."""
