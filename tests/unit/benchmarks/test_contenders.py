"""Who takes part in the benchmark."""

from __future__ import annotations

import pytest

from benchmarks.bench import CHECKOUT
from benchmarks.contenders import chosen
from benchmarks.tasks.contenders import CONTENDERS


def test_every_engine_has_its_adapter():
    missing = [
        c.engine.module for c in CONTENDERS if not (CHECKOUT / f"{c.engine.module.replace('.', '/')}.py").exists()
    ]

    assert missing == []


def test_every_package_of_a_peer_is_pinned():
    loose = [package for c in CONTENDERS for package in c.engine.packages if "==" not in package]

    assert loose == []


def test_an_unknown_engine_is_refused_by_name():
    with pytest.raises(ValueError, match="no engine 'sidekiq'"):
        chosen(CONTENDERS, ["ours", "sidekiq"])


def test_an_engine_brings_all_its_settings():
    assert len(chosen(CONTENDERS, ["pgqueuer"])) == 3
