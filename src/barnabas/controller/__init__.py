"""The controller: decides changes of the cluster from its image, and writes them as metadata records."""
