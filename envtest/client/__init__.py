"""What tests of either kind of cluster use: an API client, waiting, the folders of a node."""
