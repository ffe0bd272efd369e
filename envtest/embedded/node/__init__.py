"""The embedded kubelet, its container runtime and its processes."""
