"""What every NVML promises the driver, as clauses that only read: they run on any GPU, real or fake."""
