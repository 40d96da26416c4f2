"""Processes that a worker starts find what it would find."""

from __future__ import annotations

import socket

import pytest

from catbird_django.errors import CatbirdError
from catbird_django.worker.fresh_process import start_process


def test_without_a_module_of_settings_no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")
    ours, theirs = socket.socketpair()

    with ours, theirs, pytest.raises(CatbirdError, match="settings in a module"):
        start_process("nowhere:main", end=theirs, own_session=True)


def test_a_process_finds_modules_where_its_parent_does(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path_factory.mktemp("elsewhere")
    (place / "told_apart.py").write_text(
        "import os, socket\n"
        "def main(descriptor, parent):\n"
        "    line = socket.socket(fileno=descriptor)\n"
        "    line.sendall(f'{parent == os.getppid()} {\"CATBIRD_MODULE_PATH\" in os.environ}'.encode())\n"
    )
    monkeypatch.syspath_prepend(place)
    ours, theirs = socket.socketpair()

    with ours:
        with theirs:
            process = start_process("told_apart:main", end=theirs, own_session=True)
        ours.settimeout(30)
        said = ours.recv(100)

    assert said == b"True False"
    assert process.wait(timeout=30) == 0
