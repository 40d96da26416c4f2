"""Turns the library's list of errors into one PayloadError that names every place, without showing the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from catbird_django.codec.paths import join
from catbird_django.codec.structs import STRUCT_ERROR
from catbird_django.errors import PayloadError

if TYPE_CHECKING:
    from pydantic import ValidationError

MAX_PROBLEMS = 5

_UNKNOWN_FIELD = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_JSON_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "a number",
               float: "a number", type(None): "null"}  # fmt: skip


def payload_error(error: ValidationError, text: str, *, name: str) -> PayloadError:
    """Describe the first problems, in the order of the document; `path` is that of the first."""
    problems = error.errors(include_url=False)
    if problems[0]["type"] == "json_invalid":
        return PayloadError(f"not valid JSON: {problems[0]['ctx']['error']}", path=name)
    document = from_json(text)
    found = [_describe(problem, document, name) for problem in problems[:MAX_PROBLEMS]]
    (path, message), others = found[0], found[1:]
    listed = "".join(f"; {other}: {what}" for other, what in others)
    left_out = len(problems) - len(found)
    return PayloadError(message + listed + (f"; and {left_out} more" if left_out else ""), path=path)


def _describe(problem: Any, document: object, name: str) -> tuple[str, str]:
    path, aside = _place(problem, document, name)
    if problem["type"] == STRUCT_ERROR:
        path += problem["ctx"]["place"].removeprefix("$")
    return path, _message(problem) + (f" (as {aside})" if aside else "")


def _place(problem: Any, document: object, name: str) -> tuple[str, str]:
    """Separate the steps into the document from the alternatives of a union, which the library lists among them."""
    path, here, aside = name, document, []
    for number, step in enumerate(problem["loc"], start=1):
        is_last = number == len(problem["loc"])
        if _leads_somewhere(here, step):
            path, here = join(path, step), here[step]  # type: ignore[index]  # a dict with the key, or a list with the place
        elif is_last and problem["type"] == "missing":
            path = join(path, step)
        else:
            aside.append(str(step).strip("[]"))
    return path, ", ".join(aside)


def _leads_somewhere(here: object, step: object) -> bool:
    if isinstance(here, dict):
        return step in here
    return isinstance(here, list) and isinstance(step, int) and step < len(here)


def _message(problem: Any) -> str:
    kind = problem["type"]
    if kind == "missing":
        return "is missing"
    if kind in _UNKNOWN_FIELD:
        return "is not a field of the declared type"
    message = str(problem["msg"]).removeprefix("Value error, ").replace("Input should", "should")
    return f"{message}, not {_JSON_NAMES[type(problem['input'])]}" if _is_about_kind(problem) else message


def _is_about_kind(problem: Any) -> bool:
    return problem["type"].endswith("_type") and type(problem["input"]) in _JSON_NAMES
