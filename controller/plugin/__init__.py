"""Talks with the kubelet plugins of the node: which of them serve, what claims hold, what is blocked."""
