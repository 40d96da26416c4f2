"""Write the reference of the SQL functions from the comments above them.

    python scripts/sql_api.py            print it, as Markdown
    python scripts/sql_api.py FILE       write it to a file; the documentation's build does this

A file of catbird_django/sql/ becomes a section: its opening comment, then every public function (`cb_…`) with its
signature and the comment above it, then the private ones (`_cb_…`) with their first sentence.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

SQL = Path(__file__).resolve().parent.parent / "catbird_django" / "sql"

INTRODUCTION = """\
# SQL functions

Each change of state is one SQL function; Python, and any other language, calls it with named arguments. This page is
written from the comments in `catbird_django/sql/`, the files that the functions are installed from.

`cb_…` functions are public: until 1.0 they may still change from one release to the next, and the changelog says so.
`_cb_…` functions are private and may change any day.
"""

COMMENT = r"(?:^--[^\n]*\n)+"
OPENING = re.compile(rf"\A{COMMENT}(?=\n|\Z)", re.MULTILINE)
FUNCTION = re.compile(
    rf"(?P<comment>{COMMENT})?"
    r"^CREATE OR REPLACE FUNCTION (?P<name>\w+)(?P<signature>.*?)"
    r"^LANGUAGE\b(?P<manner>.*?)\bAS \$",
    re.MULTILINE | re.DOTALL,
)

# What is no prose: names of functions and arguments, and literals. The numbers of requirements mean nothing to readers.
CODE = re.compile(r"(?<!\w)(?:_?cb_\w+(?:\(\))?|p_\w+(?: => \w+)?|'\w+')(?!\w)")
REQUIREMENT_NUMBERS = re.compile(r" ?\([A-Z]\d+[a-z]?(?:, [A-Z]\d+[a-z]?)*\)")
MARKUP = re.compile(r"([\\*_\[\]<>{}])")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFunction:
    """One function as its file declares it."""

    name: str
    signature: str
    comment: str
    runs_as_owner: bool

    @property
    def is_public(self) -> bool:
        return not self.name.startswith("_")

    @property
    def first_sentence(self) -> str:
        return re.split(r"(?<=\.)\s", self.comment, maxsplit=1)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFile:
    """One file: what it says of itself, and its functions."""

    name: str
    opening: str
    functions: list[SqlFunction]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, help="where to write it (default: print it)")
    options = parser.parse_args()
    if options.file is None:
        sys.stdout.write(reference())
    else:
        write_reference(options.file)


def write_reference(target: Path, folder: Path = SQL) -> None:
    """Write the page, unless it already says the same: a page that is not touched is not built again."""
    text = reference(folder)
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        target.write_text(text, encoding="utf-8")


def reference(folder: Path = SQL) -> str:
    """Give the whole page as Markdown."""
    files = [read_file(path.stem, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.sql"))]
    # Files that others may call come first; what only keeps the house follows.
    files.sort(key=lambda file: not any(function.is_public for function in file.functions))
    return "\n".join([INTRODUCTION, *(section(file) for file in files)])


def read_file(name: str, text: str) -> SqlFile:
    """Take a file apart; refuse a public function that says nothing of itself."""
    opening = OPENING.search(text)
    return SqlFile(
        name=name,
        opening=uncommented(opening[0]) if opening else "",
        functions=[read_function(match) for match in FUNCTION.finditer(text)],
    )


def read_function(match: re.Match[str]) -> SqlFunction:
    function = SqlFunction(
        name=match["name"],
        signature=f"{match['name']}{match['signature']}".strip(),
        comment=uncommented(match["comment"] or ""),
        runs_as_owner="SECURITY DEFINER" in match["manner"],
    )
    if function.is_public and not function.comment:
        raise ValueError(
            f"{function.name} has no comment above it: say what it promises, what comes back, what it locks"
        )
    return function


def uncommented(comment: str) -> str:
    return "\n".join(line.removeprefix("--").strip() for line in comment.splitlines())


def section(file: SqlFile) -> str:
    parts = [f"## {file.name}.sql", prose(file.opening)]
    parts += [entry(function) for function in file.functions if function.is_public]
    private = [function for function in file.functions if not function.is_public]
    if private:
        parts.append("Private:")
        parts.append("\n".join(f"- `{function.name}`: {in_one_line(function)}" for function in private))
    return "\n\n".join(part for part in parts if part) + "\n"


def entry(function: SqlFunction) -> str:
    parts = [f"### {function.name}", f"```sql\n{function.signature}\n```", prose(function.comment)]
    if function.runs_as_owner:
        parts.append("Runs with the rights of the functions' owner.")
    return "\n\n".join(parts)


def in_one_line(function: SqlFunction) -> str:
    return " ".join(prose(function.first_sentence).split())


def prose(text: str) -> str:
    """Make Markdown of a comment: code is marked as such, and nothing else is taken for markup."""
    pieces = re.split(r"(`[^`]+`)", REQUIREMENT_NUMBERS.sub("", text))
    return "".join(piece if piece.startswith("`") else _marked(piece) for piece in pieces)


def _marked(text: str) -> str:
    marked = []
    end = 0
    for match in CODE.finditer(text):
        marked += [MARKUP.sub(r"\\\1", text[end : match.start()]), f"`{match[0]}`"]
        end = match.end()
    return "".join([*marked, MARKUP.sub(r"\\\1", text[end:])])


if __name__ == "__main__":
    main()
