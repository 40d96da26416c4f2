"""An app with flows that cannot work."""
