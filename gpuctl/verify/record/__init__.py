"""Records a machine with GPUs, so that the fakes can be like it."""
