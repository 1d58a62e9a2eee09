"""The metadata of a cluster: the records that tell it, and the image that they add up to."""
