"""Elements of XML, everything in them escaped."""

from __future__ import annotations

import re
from html import escape

# What XML 1.0 has no way to write: control characters, halves of surrogate pairs, and two that are no characters.
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

Attribute = str | float | None


class Xml(str):
    """Text that is XML already."""

    __slots__ = ()


def element(tag: str, attributes: dict[str, Attribute], *children: str) -> Xml:
    """Write an element. Children that are not `Xml` are escaped; attributes that are None are left out."""
    written = "".join(
        f' {name}="{escaped(_as_text(value))}"' for name, value in attributes.items() if value is not None
    )
    content = "".join(child if isinstance(child, Xml) else escaped(child, quote=False) for child in children)
    return Xml(f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>")


def escaped(text: str, *, quote: bool = True) -> str:
    """The text with nothing left in it that XML would take for markup, or refuse."""
    return escape(UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text), quote=quote)


def number(value: float) -> str:
    """A coordinate, as short as it can be written."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _as_text(value: str | float) -> str:
    return value if isinstance(value, str) else number(value)
