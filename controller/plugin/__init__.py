"""Listens to the kubelet plugins of the node: which of them serve, what they hold, what blocks them."""
