"""What code declares: names, signatures, tasks. Free of Django and of the database."""
