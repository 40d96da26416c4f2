"""The reference of the SQL functions, made from the comments above them."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from scripts.sql_api import SQL, prose, read_file, reference, section, write_reference

if TYPE_CHECKING:
    from pathlib import Path

TEXT = dedent(
    """\
    -- Doors: open and close (R1).
    --
    -- Locks: doors by id.

    -- Open these doors. 'opened' or 'stuck' for each; see _cb_knock().
    CREATE OR REPLACE FUNCTION cb_open_doors(
        p_door_ids bigint[]
    )
    RETURNS TABLE (door_id bigint, verdict text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    BEGIN
        -- Not a comment of anything below.
    END;
    $$;

    -- Knock first. Nobody needs to answer.
    CREATE OR REPLACE FUNCTION _cb_knock()
    RETURNS void
    LANGUAGE sql AS $$ SELECT $$;
    """
)


def test_a_file_opens_its_section_with_its_own_comment():
    page = section(read_file("doors", TEXT))

    assert page.startswith("## doors.sql\n\nDoors: open and close.\n\nLocks: doors by id.\n")


def test_a_public_function_has_its_signature_and_the_comment_above_it():
    page = section(read_file("doors", TEXT))

    assert "### cb_open_doors\n" in page
    assert "cb_open_doors(\n    p_door_ids bigint[]\n)\nRETURNS TABLE (door_id bigint, verdict text)\n```" in page
    assert "Open these doors. `'opened'` or `'stuck'` for each; see `_cb_knock()`." in page


def test_a_function_with_the_rights_of_its_owner_is_marked():
    page = section(read_file("doors", TEXT))

    assert page.count("Runs with the rights of the functions' owner.") == 1


def test_a_private_function_is_only_named_with_its_first_sentence():
    page = section(read_file("doors", TEXT))

    assert "- `_cb_knock`: Knock first.\n" in page
    assert "### _cb_knock" not in page
    assert "Nobody needs to answer" not in page


def test_a_public_function_without_a_comment_is_refused():
    silent = TEXT.replace("-- Open these doors. 'opened' or 'stuck' for each; see _cb_knock().\n", "")

    with pytest.raises(ValueError, match="cb_open_doors has no comment above it"):
        read_file("doors", silent)


@pytest.mark.parametrize(
    ("comment", "markdown"),
    [
        ("a*b_c <d> [e]", r"a\*b\_c \<d\> \[e\]"),
        ("`left * as _it_ is`", "`left * as _it_ is`"),
        ("p_notify => true sends", "`p_notify => true` sends"),
        ("the worker's own, don't touch", "the worker's own, don't touch"),
        ("twice (R5, R5a), at most", "twice, at most"),
        ("(0: at its head)", "(0: at its head)"),
    ],
)
def test_prose_stays_prose_and_code_is_marked(comment: str, markdown: str):
    assert prose(comment) == markdown


def test_every_public_function_of_ours_is_in_the_reference():
    declared = {
        name
        for path in SQL.glob("*.sql")
        for name in re.findall(r"^CREATE OR REPLACE FUNCTION (cb_\w+)", path.read_text(), re.MULTILINE)
    }

    assert set(re.findall(r"^### (\w+)$", reference(), re.MULTILINE)) == declared


def test_a_page_that_already_says_the_same_is_not_written_again(tmp_path: Path):
    page = tmp_path / "sql-api.md"
    write_reference(page)
    written_at = page.stat().st_mtime_ns

    write_reference(page)

    assert page.stat().st_mtime_ns == written_at
