"""What tests of either kind of cluster use: an API client, waiting, the driver on a node."""
