"""Every SQL test has a transaction to itself."""

import pytest


@pytest.fixture(autouse=True)
def _database(db: None) -> None:
    """These tests are about nothing but the database."""
