"""R10: one rule for names."""

import pytest

from catbird_django.definitions.names import RESERVED, check_name
from catbird_django.errors import DefinitionError


@pytest.mark.parametrize("name", ["a", "mail", "mail_2", "a" * 64, "tasks"])
def test_a_good_name_is_taken(name: str) -> None:
    assert check_name(name, "task") == name


@pytest.mark.parametrize(
    "name",
    ["", "A", "Mail", "2mail", "_mail", "ma il", "mail-2", "mäil", "a" * 65, "mail\n", "mail;drop", 'x"y', "mail\x00"],
)
def test_a_bad_name_is_refused_with_the_rule(name: str) -> None:
    with pytest.raises(DefinitionError, match="lower-case letters, digits and _"):
        check_name(name, "task")


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_reserved_word_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="reserved"):
        check_name(name, "task")


@pytest.mark.parametrize("name", [None, 1, b"mail"])
def test_something_else_than_a_string_is_refused(name: object) -> None:
    with pytest.raises(DefinitionError, match="must be a string"):
        check_name(name, "task")
