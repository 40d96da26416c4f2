"""A Django database engine, to be named in DATABASES as `project.embedded.backend`."""
