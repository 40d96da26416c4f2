"""Sends inputs to the database a few thousand at a time, all or none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db import transaction

from catbird_django.codec import Codec
from catbird_django.conf import get_settings
from catbird_django.errors import UnknownName

CHUNK = 2_000  # inputs sent in one statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """Starts runs of a task or flow that this process declares, making sure that the database knows it."""

    what: str
    """As errors name it."""
    codec: Codec[Any]
    start: Callable[[list[str]], list[int] | None]
    """Start one run per encoded input; None if the database does not know what of."""
    register: Callable[[], object]
    using: str

    def start_all(self, inputs: Iterable[Any]) -> list[int]:
        """Start one run per input; return their ids, in order."""
        max_bytes = get_settings().max_payload
        encoded = (self.codec.encode(value, name="input", max_bytes=max_bytes) for value in inputs)
        first = list(islice(encoded, CHUNK))
        if len(first) < CHUNK:
            return self._start_chunk(first) if first else []
        with transaction.atomic(using=self.using):
            run_ids = self._start_chunk(first)
            while chunk := list(islice(encoded, CHUNK)):
                run_ids += self._start_chunk(chunk)
        return run_ids

    def _start_chunk(self, encoded: list[str]) -> list[int]:
        run_ids = self.start(encoded)
        if run_ids is None:
            # The first run of all, or the table was emptied. Asking first would cost every run a round trip, and a role
            # that may only produce could not run what others have registered.
            self.register()
            run_ids = self.start(encoded)
        if run_ids is None:
            raise UnknownName(f"{self.what} cannot be found in database {self.using!r}")
        return run_ids


def for_each(key: str | None, inputs: list[str]) -> list[str] | None:
    """A key once for each input, as SQL takes it."""
    return None if key is None else [key] * len(inputs)
