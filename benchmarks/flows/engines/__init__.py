"""Adapters. Each runs in its engine's environment, so none may import more than that and the standard library."""
