"""vGPUs as a host offers them: names, counters, devices, the field `vgpu` of a rule."""
