"""What a node needs for virtual machines, and what it knows when it is one: kernel, editions, licenses."""
