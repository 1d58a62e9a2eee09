"""Record batches as bytes: format, compression, validation, and the kernel that parses them."""
