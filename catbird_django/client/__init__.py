"""What applications call: declare, run, wait."""
