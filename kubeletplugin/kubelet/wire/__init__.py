"""What several folders of the plugin use: calls, streams, sockets, names, settings of an MPS daemon."""
