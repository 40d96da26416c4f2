"""Measures what the project claims about speed, next to its peers and to what PostgreSQL itself can do."""
