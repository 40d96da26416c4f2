"""Conditions on JSON values: one grammar, parsed here to a tree that SQL evaluates (F10); the same in Python for tests.

`[not] field [op value]`, joined by `and` and `or`, with parentheses; `not` binds tighter than `and`, `and` than `or`.
"""

from __future__ import annotations

from catbird_django.definitions.conditions.evaluator import ConditionTypeError, evaluate
from catbird_django.definitions.conditions.parser import Condition, parse_condition, roots_of

__all__ = ["Condition", "ConditionTypeError", "evaluate", "parse_condition", "roots_of"]
