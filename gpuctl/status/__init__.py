"""gpuctl status: what is allocated, free or unavailable."""
