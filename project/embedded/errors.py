"""The one error of the embedded PostgreSQL."""


class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL cannot run; the message is one line that says why and what to do."""
