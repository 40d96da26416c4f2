"""The Django engine on the embedded server: lazy, and an ordinary database error when the server cannot run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import OperationalError

from project.embedded.backend.base import DatabaseWrapper, server_for

CHECKOUT = Path(__file__).resolve().parents[2]


def test_a_command_that_needs_no_database_starts_none(place):
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    environment |= {"DJANGO_SETTINGS_MODULE": "project.settings", "CATBIRD_HOME": str(place / "home")}

    subprocess.run([sys.executable, "manage.py", "check"], cwd=CHECKOUT, env=environment, check=True)

    assert not list(place.glob("home/cluster-*"))


def test_a_server_that_cannot_run_is_a_database_that_cannot_be_reached(tmp_path):
    (tmp_path / "file").touch()
    settings = {"NAME": "postgres", "OPTIONS": {}, "EMBEDDED": {"home": tmp_path / "file" / "home"}}

    with pytest.raises(OperationalError, match=r"cannot make .*DATABASE_URL"):
        DatabaseWrapper(settings).get_connection_params()


def test_a_process_takes_part_once_per_home(tmp_path):
    first = server_for({"home": tmp_path / "a"})

    assert server_for({"home": str(tmp_path / "a")}) is first
    assert server_for({"home": tmp_path / "b"}) is not first
