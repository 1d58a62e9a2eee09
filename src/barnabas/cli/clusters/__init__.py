"""What `barnabas cluster` tells of partitions: pure functions, and the command around them."""
