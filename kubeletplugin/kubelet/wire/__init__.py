"""What several rooms of the plugin speak: calls, streams, sockets, names, the spec of an MPS daemon."""
