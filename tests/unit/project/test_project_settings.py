"""What the host project takes from its environment."""

from __future__ import annotations

import stat
from types import SimpleNamespace

import environ
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError

from project.database import database_settings, why_unusable
from project.secret_key import kept_secret_key


def settings_for(monkeypatch, tmp_path, url: str | None):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    if url is not None:
        monkeypatch.setenv("DATABASE_URL", url)
    return database_settings(environ.Env(), home=tmp_path)


@pytest.mark.parametrize("url", [None, ""])
def test_without_a_url_the_database_is_the_embedded_one(monkeypatch, tmp_path, url):
    settings = settings_for(monkeypatch, tmp_path, url)

    assert settings["ENGINE"] == "project.embedded.backend"
    assert settings["EMBEDDED"]["home"] == tmp_path


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_a_url_names_the_database_and_the_wait_for_it_is_bounded(monkeypatch, tmp_path, scheme):
    settings = settings_for(monkeypatch, tmp_path, f"{scheme}://ada:s%40cret@db.example:6543/orders")

    assert settings["ENGINE"] == "django.db.backends.postgresql"
    assert (settings["HOST"], settings["PORT"], settings["NAME"]) == ("db.example", 6543, "orders")
    assert settings["PASSWORD"] == "s@cret"
    assert settings["OPTIONS"]["connect_timeout"] == 5


@pytest.mark.parametrize(
    "url", ["mysql://ada@db/orders", "sqlite:///orders.db", "postgresql://db.example", "nonsense", "oracle://u:p@db/x"]
)
def test_a_url_that_is_not_of_a_postgresql_database_says_what_to_do(monkeypatch, tmp_path, url):
    with pytest.raises(ImproperlyConfigured, match=r"DATABASE_URL .*unset it"):
        settings_for(monkeypatch, tmp_path, url)


class FakeConnection(SimpleNamespace):
    """A connection as far as `why_unusable` looks at it."""

    settings_dict: dict[str, object] = {}

    def ensure_connection(self) -> None:
        if self.error:
            raise self.error


def test_a_server_that_answers_and_is_new_enough_serves():
    assert why_unusable(FakeConnection(error=None, pg_version=150004)) is None


def test_an_old_server_is_named_with_its_version():
    complaint = why_unusable(FakeConnection(error=None, pg_version=140012))

    assert "PostgreSQL 14, and 15 or newer is needed" in complaint


def test_a_server_that_does_not_answer_is_explained_in_one_line():
    complaint = why_unusable(FakeConnection(error=OperationalError("connection refused\n\tIs it running?")))

    assert "\n" not in complaint
    assert "connection refused Is it running?" in complaint
    assert "start that server, correct the URL, or unset it" in complaint


def test_the_secret_key_is_made_once_and_readable_by_its_owner_only(tmp_path):
    file = tmp_path / "home" / "secret_key"

    key = kept_secret_key(file)

    assert len(key) >= 50
    assert kept_secret_key(file) == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in file.parent.iterdir()] == ["secret_key"]


def test_where_no_key_can_be_kept_one_is_made_for_the_process(tmp_path):
    (tmp_path / "home").write_text("a file in the way")

    assert len(kept_secret_key(tmp_path / "home" / "secret_key")) >= 50
