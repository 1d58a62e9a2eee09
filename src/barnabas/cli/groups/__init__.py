"""What `barnabas group` does with offsets: how far groups have read, and where they are to read on."""
