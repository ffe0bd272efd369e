"""The NVML edge: the Protocol, the real binding, the stateful fake and the deadlines."""
