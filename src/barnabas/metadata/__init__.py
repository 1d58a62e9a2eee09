"""The metadata of a cluster: the records of the metadata log, and the image built from them."""
