"""MPS of a fake machine: the control daemon, its servers, its clients."""
