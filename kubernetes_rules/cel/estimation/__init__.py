"""What an expression costs at most, estimated from its types and the declared sizes of its variables."""
