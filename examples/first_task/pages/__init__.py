"""An app with one task."""
