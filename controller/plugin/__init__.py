"""Listens to the kubelet plugins of the node: who serves, what they hold, what blocks them."""
