"""An app that books the invoices of a file, one by one."""
