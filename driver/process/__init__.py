"""What a process stands on: log, metrics, threads, durable files."""
