"""`engine/call.py`: binding on the server, our errors, and a retry only where the transaction is ours."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from catbird_django.engine import call
from catbird_django.engine.call import Function
from catbird_django.engine.tasks import COMPLETE
from catbird_django.errors import SchemaMismatch
from tests.support import USING, register

ECHO = Function("cb_test_echo", numbers="bigint[]", texts="text[]", documents="jsonb[]")
FLAKY = Function("cb_test_flaky", failures="integer", sqlstate="text")


@pytest.fixture(autouse=True)
def _functions(transactional_db: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("""
            CREATE FUNCTION cb_test_echo(p_numbers bigint[], p_texts text[], p_documents jsonb[])
            RETURNS TABLE (number bigint, text text, document jsonb)
            LANGUAGE sql AS $$ SELECT * FROM unnest(p_numbers, p_texts, p_documents) $$;

            CREATE SEQUENCE cb_test_attempts;
            CREATE FUNCTION cb_test_flaky(p_failures integer, p_sqlstate text) RETURNS bigint
            LANGUAGE plpgsql AS $$
            BEGIN
                IF nextval('cb_test_attempts') <= p_failures THEN
                    RAISE EXCEPTION 'not yet' USING ERRCODE = p_sqlstate;
                END IF;
                RETURN currval('cb_test_attempts');
            END $$;
        """)
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION cb_test_echo, cb_test_flaky; DROP SEQUENCE cb_test_attempts")


def test_values_arrive_as_they_were_sent() -> None:
    """Also what looks like a placeholder, a quote, or an array."""
    texts = ["%s %(x)s %%", "it's", '{"a",NULL}', "", "back\\slash", "é漢😀"]
    documents = ['{"a": 1}', "[1, 2]", '"x"', "null", "12345678901234567890", None]

    rows = ECHO.rows(USING, numbers=[1, 2**40, -1, 0, 2**62, None], texts=texts, documents=documents)

    assert [row[0] for row in rows] == [1, 2**40, -1, 0, 2**62, None]
    assert [row[1] for row in rows] == texts
    assert [row[2] for row in rows] == documents


def test_arrays_really_go_out_binary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Django's own cursor accepts %b and sends text."""
    sent: list[Any] = []
    execute = psycopg.Cursor.execute

    def spy(cursor: psycopg.Cursor[Any], *args: Any, **kwargs: Any) -> Any:
        answer = execute(cursor, *args, **kwargs)
        sent.append(list(cursor._query.formats or ()))
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", spy)
        COMPLETE.rows(
            USING, run_ids=[1], delivery_tokens=[str(uuid4())], outputs=["null"], notify=False, all_events=False
        )

    assert [formats[:3] for formats in sent] == [[psycopg.pq.Format.BINARY] * 3]


def test_a_query_is_logged_as_usual(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        ECHO.rows(USING, numbers=[], texts=[], documents=[])


@pytest.mark.parametrize("sqlstate", ["40P01", "40001"])
def test_a_lock_conflict_is_repeated_where_the_transaction_is_ours(sqlstate: str) -> None:
    """R6a."""
    assert FLAKY.value(USING, failures=3, sqlstate=sqlstate) == 4


def test_a_lock_conflict_is_not_repeated_for_ever() -> None:
    with pytest.raises(DatabaseError, match="not yet"):
        FLAKY.value(USING, failures=100, sqlstate="40P01")

    assert FLAKY.value(USING, failures=0, sqlstate="40P01") == call.MAX_ATTEMPTS + 1


def test_inside_a_callers_transaction_a_lock_conflict_is_raised_unchanged() -> None:
    """R6a: the conflict has undone the caller's work too."""
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        FLAKY.value(USING, failures=1, sqlstate="40P01")

    assert caught.value.__cause__.sqlstate == "40P01"
    assert FLAKY.value(USING, failures=0, sqlstate="40P01") == 2


def test_any_other_error_is_raised_at_once() -> None:
    with pytest.raises(DatabaseError, match="not yet"):
        FLAKY.value(USING, failures=1, sqlstate="22023")

    assert FLAKY.value(USING, failures=0, sqlstate="22023") == 2


def test_a_missing_function_says_to_migrate() -> None:
    with pytest.raises(SchemaMismatch, match=r"run `manage\.py migrate catbird`"):
        Function("cb_not_there").rows(USING)


def test_calls_join_the_callers_transaction() -> None:
    with transaction.atomic():
        register("mail")
        transaction.set_rollback(True)

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM cb_tasks WHERE name = 'mail'")
        assert cursor.fetchone() == (0,)
