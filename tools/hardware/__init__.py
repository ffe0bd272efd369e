"""What the makers of this driver learn on a machine with a GPU: what NVML promises, answers and is like.

``python -m tools.hardware`` checks the contract that the driver relies on, compares NVML with NVIDIA's own
programs, and records the machine for the fakes.
"""
