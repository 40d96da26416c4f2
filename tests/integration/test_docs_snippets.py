"""Every Python snippet in README.md and docs/ is a verbatim piece of an example that is named above it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for path in [CHECKOUT / "README.md", *(CHECKOUT / "docs").rglob("*.md")]
    if "_build" not in path.parts and path.name != "sql-api.md"
)
LANGUAGES = {"python", "pycon", "sh", "sql", "text", "html", "{toctree}"}

BLOCK = re.compile(
    r"(?:^ *<!-- from (?P<source>\S+) -->\n)?"
    r"^ *(?P<fence>```+)(?P<language>[^\n]*)\n(?P<code>.*?)^ *(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    source: str | None
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(CHECKOUT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match["language"].strip(), match["source"], match["code"])
        for match in BLOCK.finditer(text)
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
SNIPPETS = [block for block in BLOCKS if block.language == "python"]


def is_piece_of(snippet: str, text: str) -> bool:
    """Say whether the snippet's lines stand together in the text, at whatever depth."""
    wanted = dedent(snippet).strip("\n").splitlines()
    lines = text.splitlines()
    windows = (lines[start : start + len(wanted)] for start in range(len(lines)))
    return any(dedent("\n".join(window)).splitlines() == wanted for window in windows)


def test_there_are_snippets_to_look_at():
    assert {block.page.name for block in SNIPPETS} >= {"README.md", "first-task.md", "install.md"}


@pytest.mark.parametrize("snippet", SNIPPETS, ids=str)
def test_a_python_snippet_is_a_verbatim_piece_of_an_example(snippet: Block):
    assert snippet.source, "name the example on the line above: <!-- from examples/… -->"
    assert snippet.source.startswith("examples/")

    assert is_piece_of(snippet.code, (CHECKOUT / snippet.source).read_text())


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_says_its_language(block: Block):
    assert block.language in LANGUAGES


def test_a_snippet_that_was_changed_is_noticed():
    text = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"

    assert is_piece_of("return 2\n", text)
    assert is_piece_of("    def two():\n        return 2\n", text)
    assert not is_piece_of("def two():\n    return 3\n", text)
    assert not is_piece_of("def one():\n    return 2\n", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_to_a_file_of_ours_leads_somewhere(page: Path):
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())

    # The screenshot is taken from the running demo, and the reference of SQL is made when the pages are built.
    made_later = {"task-runs.png", "sql-api.md"}
    dead = [target for target in targets if not (page.parent / target).exists() and Path(target).name not in made_later]
    assert dead == []
