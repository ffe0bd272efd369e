"""How well a fake GPU is: what its NVML tells when asked, and the events that it tells of itself."""
