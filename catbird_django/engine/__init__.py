"""The gateway to PostgreSQL: the only place with a cursor. One module per SQL file, one function per SQL function."""
