"""An app with a task that kills its worker, for tests that start workers as processes."""
