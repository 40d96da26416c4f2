"""Makes a tree of a condition's text, by recursive descent, or says where the text goes wrong."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from catbird_django.definitions.conditions.tokens import Kind, Token, cut, refuse
from catbird_django.errors import DefinitionError

MAX_DEPTH = 5  # parentheses within parentheses

COMPARISONS = frozenset({"eq", "ne", "gt", "gte", "lt", "lte", "in", "contains"})

Tree = dict[str, Any]
"""{"op": "and" | "or" | "not", "of": [trees]}, or {"op", "field": as written, "path": [...]} with the "value" of an op
that has one; a bare field has the op "truthy"."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as it was written, and its tree."""

    text: str
    tree: Tree

    def as_json(self) -> dict[str, Any]:
        """What is stored with the definition."""
        return {"text": self.text, "tree": self.tree}


def parse_condition(text: object, *, roots: Collection[str]) -> Condition:
    """Parse a condition on fields of these roots; raise DefinitionError, saying where it is wrong."""
    if not isinstance(text, str):
        raise DefinitionError(f"a condition must be a string, not {text!r:.80}")
    return Condition(text, _Parser(text, roots).parse())


class _Parser:
    """One pass over the tokens of one condition."""

    def __init__(self, text: str, roots: Collection[str]) -> None:
        self._text = text
        self._roots = roots
        self._tokens = cut(text)
        self._place = 0
        self._depth = 0

    def parse(self) -> Tree:
        tree = self._either()
        if self._next.kind is not Kind.END:
            self._refuse("expected 'and', 'or' or the end")
        return tree

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    def _take(self) -> Token:
        token = self._next
        self._place += 1
        return token

    def _takes_word(self, word: str) -> bool:
        found = self._next.kind is Kind.WORD and self._next.text == word
        self._place += found
        return found

    def _refuse(self, why: str) -> None:
        refuse(self._text, self._next.position, why)

    def _either(self) -> Tree:
        sides = [self._both()]
        while self._takes_word("or"):
            sides.append(self._both())
        return _joined("or", sides)

    def _both(self) -> Tree:
        sides = [self._negated()]
        while self._takes_word("and"):
            sides.append(self._negated())
        return _joined("and", sides)

    def _negated(self) -> Tree:
        if self._takes_word("not"):
            return {"op": "not", "of": [self._negated()]}
        if self._next.kind is Kind.OPEN:
            return self._in_parentheses()
        return self._test()

    def _in_parentheses(self) -> Tree:
        if self._depth == MAX_DEPTH:
            self._refuse(f"parentheses are nested more than {MAX_DEPTH} deep")
        self._depth += 1
        self._take()
        tree = self._either()
        if self._next.kind is not Kind.CLOSE:
            self._refuse("expected ')'")
        self._take()
        self._depth -= 1
        return tree

    def _test(self) -> Tree:
        if self._next.kind is not Kind.FIELD:
            self._refuse(f"expected a field, as in {min(self._roots)}.name")
        self._refuse_root()
        field = self._take()
        node: Tree = {"op": "truthy", "field": field.text, "path": field.value}
        if self._takes_word("exists"):
            return {**node, "op": "exists"}
        if self._next.kind is Kind.WORD and self._next.text in COMPARISONS:
            op = self._take().text
            return {**node, "op": op, "value": self._value(op)}
        return node

    def _refuse_root(self) -> None:
        if self._next.value[0] not in self._roots:
            self._refuse(f"there is no field {self._next.value[0]!r} here (there is: {', '.join(sorted(self._roots))})")

    def _value(self, op: str) -> Any:
        if self._next.kind is not Kind.VALUE:
            self._refuse(f"expected a JSON value after '{op}'; strings are written with double quotes")
        if op == "in" and not isinstance(self._next.value, list):
            self._refuse("'in' needs a list, as in [1, 2]")
        return self._take().value


def _joined(op: str, sides: list[Tree]) -> Tree:
    return sides[0] if len(sides) == 1 else {"op": op, "of": sides}


def roots_of(tree: Tree) -> frozenset[str]:
    """The names that a condition's fields begin with."""
    if "path" in tree:
        return frozenset({tree["path"][0]})
    return frozenset().union(*(roots_of(side) for side in tree["of"]))
