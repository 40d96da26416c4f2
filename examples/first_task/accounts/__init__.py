"""An app that starts a task in the transaction of its own rows."""
