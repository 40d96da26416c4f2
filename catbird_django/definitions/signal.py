"""`Signal`: what a step waits for from outside, who may give it, and by when (F12, F13)."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any

from catbird_django.codec import codec_for
from catbird_django.definitions.checked import (
    checked_count,
    checked_duration,
    checked_flag,
    checked_text,
    checked_texts,
    in_seconds,
)
from catbird_django.errors import DefinitionError

UNSTATED: Any = object()  # None may be a payload

PERMISSION = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*")
MAX_PAYLOAD = 2**20  # bytes


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal of a type. `signal=Approval` is short for `signal=Signal(Approval)`."""

    type: Any
    _: KW_ONLY
    permission: str = ""
    """Who has this permission may give it, as in "shop.approve_order"."""
    groups: str | Sequence[str] = ()
    """Who is in one of these groups may give it."""
    users: str | Sequence[str] = ()
    """These users may give it, by user name."""
    four_eyes: bool = False
    """Whether who started the run may not give it."""
    quorum: int = 1
    """How many different people must give it; with more than one the parameter is a list."""
    decision: str = ""
    """The field of the type that, when false, decides at once, whatever the quorum."""
    deadline: float | timedelta | None = None
    """How long it is waited for."""
    remind: float | timedelta | None = None
    """After how long people are reminded."""
    on_deadline: Any = UNSTATED
    """The payload that takes its place at the deadline."""
    escalate_to: str = ""
    """The group that may give it from the deadline on."""
    form: Any = None
    """The form that people fill in, as a class or as "module:name"; by default it is made from the type."""

    def __post_init__(self) -> None:
        _check_people(self)
        _check_times(self)
        checked_text("decision", self.decision)
        checked_flag("four_eyes", self.four_eyes)
        if checked_count("quorum", self.quorum, least=1) is None:
            raise DefinitionError("quorum must be a whole number from 1 to 10 000, not None")
        _form_path(self.form)

    @property
    def parameter_type(self) -> Any:
        """The type of the step's `signal` parameter."""
        return types.GenericAlias(list, (self.type,)) if self.quorum > 1 else self.type

    @property
    def has_default(self) -> bool:
        """Whether a payload takes its place at the deadline."""
        return self.on_deadline is not UNSTATED

    def as_json(self) -> dict[str, Any]:
        """What is stored of it, besides its type; `on_deadline` is there only when it was given."""
        stored = {
            "permission": self.permission,
            "groups": list(checked_texts("groups", self.groups)),
            "users": list(checked_texts("users", self.users)),
            "four_eyes": self.four_eyes,
            "quorum": self.quorum,
            "decision": self.decision,
            "deadline": in_seconds(checked_duration("deadline", self.deadline)),
            "remind": in_seconds(checked_duration("remind", self.remind)),
            "escalate_to": self.escalate_to,
            "form": _form_path(self.form),
        }
        return stored | ({"on_deadline": self._payload_at_deadline()} if self.has_default else {})

    def _payload_at_deadline(self) -> Any:
        return json.loads(codec_for(self.type).encode(self.on_deadline, name="on_deadline", max_bytes=MAX_PAYLOAD))


def as_signal(given: Any) -> Signal | None:
    """The signal that a step declares: a Signal, or its type alone; None for none."""
    if given is Signal:
        raise DefinitionError("its signal has no type: write signal=Signal(Type)")
    return given if given is None or isinstance(given, Signal) else Signal(given)


def _check_people(signal: Signal) -> None:
    if checked_text("permission", signal.permission) and not PERMISSION.fullmatch(signal.permission):
        raise DefinitionError(f'permission must be "app.name", not {signal.permission!r}')
    checked_texts("groups", signal.groups)
    checked_texts("users", signal.users)
    checked_text("escalate_to", signal.escalate_to)


def _check_times(signal: Signal) -> None:
    deadline = checked_duration("deadline", signal.deadline)
    remind = checked_duration("remind", signal.remind)
    if deadline is not None and remind is not None and remind >= deadline:
        raise DefinitionError("remind must be shorter than the signal's deadline")
    if signal.has_default and signal.escalate_to:
        raise DefinitionError("on_deadline and escalate_to exclude each other: one ends the wait, the other does not")
    if deadline is None and (signal.has_default or signal.escalate_to):
        raise DefinitionError(f"{'on_deadline' if signal.has_default else 'escalate_to'} needs a deadline")


def _form_path(form: Any) -> str:
    """Where the form can be imported from, as module:name; empty for none."""
    if form is None:
        return ""
    if isinstance(form, type):
        return f"{form.__module__}:{form.__qualname__}"
    if isinstance(form, str) and re.fullmatch(r"[\w.]+:[\w.]+", form):
        return form
    raise DefinitionError(f'form must be a class, or where it can be imported from as "module:name", not {form!r}')
