"""What the adapters of all benchmarks share."""
