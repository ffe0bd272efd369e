"""gpuctl import: turns what other tools are configured with into node configurations."""
