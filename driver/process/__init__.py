"""What every process needs: log, metrics, threads, durable files."""
