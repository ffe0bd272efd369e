"""What several folders of the plugin share: calls, streams, sockets, names, settings of an MPS daemon."""
