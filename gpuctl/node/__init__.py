"""gpuctl plan and topology: what one node offers, and how its GPUs reach each other."""
