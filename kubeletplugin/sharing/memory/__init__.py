"""Memory of shares: what the NVIDIA driver holds each container of a claim to, by its control group."""
