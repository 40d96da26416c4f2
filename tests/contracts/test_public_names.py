"""What users may import, and that importing needs nothing."""

import subprocess
import sys

import catbird_django


def test_every_public_name_is_there() -> None:
    assert {name for name in catbird_django.__all__ if not hasattr(catbird_django, name)} == set()


def test_the_package_can_be_imported_before_django_is_set_up() -> None:
    """X6: also without settings."""
    command = "from catbird_django import Task; print(Task('mail').name)"
    environment = {"PATH": ""}

    answer = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, env=environment, check=False
    )

    assert (answer.stdout.strip(), answer.stderr) == ("mail", "")


def test_every_error_is_of_one_family() -> None:
    errors = [
        value for value in vars(catbird_django).values() if isinstance(value, type) and issubclass(value, Exception)
    ]

    assert errors
    assert all(issubclass(error, catbird_django.CatbirdError) for error in errors)
