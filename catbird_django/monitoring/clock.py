"""The database's clock, for queries."""

from __future__ import annotations

from django.db.models import DateTimeField, Func


class DatabaseNow(Func):
    """`_cb_now()`: ages and deadlines are judged by this clock alone, never by Python's (R7)."""

    function = "_cb_now"
    arity = 0
    output_field = DateTimeField()
