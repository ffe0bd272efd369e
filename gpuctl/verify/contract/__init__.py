"""What every NVML must do, as clauses that run on a real one and on the fakes."""
