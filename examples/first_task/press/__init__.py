"""A newsletter."""
