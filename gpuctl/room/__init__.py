"""The command ``gpuctl room``: who would have to go for a pod, and which moves would free whole GPUs."""
