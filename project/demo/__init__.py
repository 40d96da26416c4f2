"""The demo: a few tasks, and the command that shows them running."""
