"""An app that sells things, and asks somebody before it ships expensive ones."""
