"""A database backend for aliases that a test makes for itself."""
