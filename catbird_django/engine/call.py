"""Calls SQL functions: named arguments, binary arrays, our errors, and a bounded retry where we own the transaction."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import django.db
import psycopg
from django.db import DatabaseError, connections

from catbird_django import errors
from catbird_django.engine.silence import under_way

if TYPE_CHECKING:
    from django.db.backends.postgresql.base import DatabaseWrapper

T = TypeVar("T")

MAX_ATTEMPTS = 5
# What a loop that must go on survives: whatever Django makes of the driver's errors, and SQL that is not (yet) there.
DATABASE_TROUBLE = (django.db.Error, errors.SchemaMismatch, errors.ReadinessOverflow)

LOCK_CONFLICTS = {"40P01", "40001"}
LOCK_NOT_AVAILABLE = "55P03"
# Classes of SQLSTATE: data exception, constraint violation, limit exceeded.
DATA_ERRORS = {"22", "23", "54"}
UNDEFINED_FUNCTION = "42883"
CHECK_VIOLATION = "23514"

# For the current transaction, and only for that.
DO_NOT_WAIT_FOR_DISK = "set_config('synchronous_commit', 'off', true)"

# SQLSTATE class CB is ours; SQL raises it only for what must undo the transaction.
ERRORS: dict[str, type[errors.CatbirdError]] = {"CB001": errors.InvalidArgument}


class Function:
    """A SQL function as Python calls it: its name and the SQL types of the arguments we pass, `p_` left out.

    Every argument is passed by name, so that SQL may gain parameters with defaults while old workers still call it.
    """

    def __init__(self, name: str, *, answering: str = "*", **argument_types: str) -> None:
        self.name = name
        self.argument_types = argument_types
        self._answering = answering
        """What to select of its answer."""
        self._statements: dict[tuple[str, ...], str] = {}

    def rows(self, using: str, **arguments: Any) -> list[tuple[Any, ...]]:
        """Call the function in the alias's current transaction and return all its rows.

        An argument that is left out has the default that SQL gives it.
        """
        statement = self._statement(using, tuple(arguments))
        return _retry_conflicts(using, lambda: _execute(using, statement, arguments))

    def _statement(self, _using: str, keys: tuple[str, ...]) -> str:
        statement = self._statements.get(keys)
        if statement is None:
            # Names and types are literals of ours.
            statement = self._statements[keys] = f"SELECT {self._answering} FROM {self._call(keys)}"  # noqa: S608
        return statement

    def _call(self, keys: Iterable[str]) -> str:
        arguments = ", ".join(f"p_{key} => {_placeholder(key, self.argument_types[key])}" for key in keys)
        return f"{self.name}({arguments})"

    def value(self, using: str, **arguments: Any) -> Any:
        """Call the function and return the one value it answers."""
        return self.rows(using, **arguments)[0][0]


class FleetingFunction(Function):
    """A function of which a crash of the server may undo what it did; so its commit need not wait for the disk.

    Not inside a caller's transaction: what else was done there is not ours to risk.
    """

    def _statement(self, using: str, keys: tuple[str, ...]) -> str:
        if not owns_transaction(using):
            return super()._statement(using, keys)
        return f"SELECT answer.* FROM {DO_NOT_WAIT_FOR_DISK}, {self._call(keys)} AS answer"  # noqa: S608


def _placeholder(key: str, sql_type: str) -> str:
    # %b asks for binary, and the cast tells PostgreSQL the type whatever psycopg made of the Python values. JSON
    # and tokens go out as text: psycopg would have to wrap every element, and an array of text is escaped by nobody.
    if sql_type in ("jsonb[]", "uuid[]"):
        return f"%({key})b::text[]::{sql_type}"
    if sql_type == "jsonb":
        return f"%({key})s::text::jsonb"
    return f"%({key}){'b' if sql_type.endswith('[]') else 's'}::{sql_type}"


def _execute(using: str, statement: str, arguments: dict[str, Any]) -> list[tuple[Any, ...]]:
    connection: DatabaseWrapper = connections[using]  # type: ignore[assignment] # checked to be PostgreSQL at start
    try:
        with under_way(lambda: connection.connection), _server_binding_cursor(connection) as cursor:
            cursor.execute(statement, arguments)
            return cursor.fetchall()  # type: ignore[no-any-return] # Django's stubs call a row Any
    except DatabaseError as error:
        _raise_ours(error)
        raise


def _server_binding_cursor(connection: DatabaseWrapper) -> Any:
    """A cursor on Django's own connection that lets the server bind the parameters.

    Django's cursor pastes them into the statement as text, arrays included, and accepts %b without obeying it. This one
    joins the same transaction, and errors are wrapped and queries logged as usual.
    """
    connection.close_if_health_check_failed()  # as Django's own cursor() does, for CONN_HEALTH_CHECKS
    connection.ensure_connection()
    return connection._prepare_cursor(psycopg.Cursor(connection.connection))  # type: ignore[attr-defined]  # noqa: SLF001


def _raise_ours(error: DatabaseError) -> None:
    """Raise our own error where the SQLSTATE is one of ours, with what SQL said."""
    sqlstate = _sqlstate(error)
    if sqlstate in ERRORS:
        raise ERRORS[sqlstate](_message(error)) from error
    if sqlstate == CHECK_VIOLATION and _constraint(error) == "cb_step_readiness_no_overflow":
        raise errors.ReadinessOverflow("a step has met more requirements than it has; nothing was written") from error
    if sqlstate == UNDEFINED_FUNCTION and "cb_" in _message(error):
        raise errors.SchemaMismatch(
            f"{_message(error)}: the database does not have the SQL of this version; run `manage.py migrate catbird`"
        ) from error


def blames_data(error: BaseException) -> bool:
    """Whether the values of a call are at fault, so that repeating it would not help."""
    return isinstance(error, errors.ReadinessOverflow) or (_sqlstate(error) or "")[:2] in DATA_ERRORS


def blames_conflict(error: BaseException) -> bool:
    """Whether a transaction was undone for what others did at the same time, so that all of it can be repeated."""
    return _sqlstate(error) in LOCK_CONFLICTS


def blames_lock(error: BaseException) -> bool:
    """Whether a call has waited long enough for a lock that somebody else holds; nothing has happened then."""
    return _sqlstate(error) == LOCK_NOT_AVAILABLE


def _sqlstate(error: BaseException) -> str | None:
    return getattr(error.__cause__, "sqlstate", None)


def _constraint(error: BaseException) -> str | None:
    diagnostics = getattr(error.__cause__, "diag", None)
    return getattr(diagnostics, "constraint_name", None)


def _message(error: BaseException) -> str:
    diagnostics = getattr(error.__cause__, "diag", None)
    return getattr(diagnostics, "message_primary", None) or str(error)


def _retry_conflicts(using: str, call: Callable[[], T]) -> T:
    """Repeat a call that lost a lock conflict, a few times, where the whole transaction is ours.

    Inside a caller's transaction the conflict has undone the caller's work too, so only the caller can repeat it.
    """
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            return call()
        except DatabaseError as error:
            last = attempt == MAX_ATTEMPTS
            if last or _sqlstate(error) not in LOCK_CONFLICTS or not owns_transaction(using):
                raise
            time.sleep(random.uniform(0, 0.01 * 2**attempt))  # noqa: S311 - jitter, not cryptography
    raise AssertionError("unreachable")


def owns_transaction(using: str) -> bool:
    connection = connections[using]
    return not connection.in_atomic_block and connection.get_autocommit()


def columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Turn rows into one list per column, as SQL functions take them; `width` lists when there are no rows."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
