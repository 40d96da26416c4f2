"""The project that the tutorial leads to."""
