"""What can be wrong between a signal and its type (F13)."""

from __future__ import annotations

from collections.abc import Iterator

from catbird_django.codec import Field, FieldKind, codec_for
from catbird_django.definitions.problems import suggest
from catbird_django.definitions.signal import Signal
from catbird_django.definitions.type_names import type_name
from catbird_django.errors import DefinitionError, PayloadError

OPEN = {FieldKind.JSON, FieldKind.MAPPING, FieldKind.UNION}  # what is inside, only a value can tell
DECIDABLE = {FieldKind.BOOLEAN, FieldKind.JSON, FieldKind.UNION}


def find_signal_faults(step: str, signal: Signal) -> Iterator[str]:
    """Say what is wrong with the signal of a step: its type, its decision, its payload at the deadline."""
    try:
        fields = codec_for(signal.type).fields()
    except DefinitionError as error:
        yield f"signal of {step}: {error}"
        return
    if signal.decision:
        yield from _decision_faults(step, signal, fields)
    try:
        signal.as_json()
    except PayloadError as error:
        yield f"signal of {step} has a payload for its deadline that does not fit: {error}"


def _decision_faults(step: str, signal: Signal, fields: tuple[Field, ...]) -> Iterator[str]:
    if [field.kind for field in fields if field.name == "value" and field.kind in OPEN]:
        return
    kinds = {field.name: field.kind for field in fields}
    decision = f"signal of {step} is decided by {signal.decision!r}, but {type_name(signal.type)}"
    if signal.decision not in kinds:
        yield f"{decision} has no such field{suggest(signal.decision, kinds)}"
    elif kinds[signal.decision] not in DECIDABLE:
        yield f"{decision} has it as {kinds[signal.decision].value}, which is neither true nor false"
