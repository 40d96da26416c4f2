"""The counter that handlers share with the measuring process."""

from __future__ import annotations

from benchmarks.engines import probe


def test_hits_and_numbered_starts_can_be_read_by_another_process(tmp_path, monkeypatch):
    monkeypatch.setenv(probe.DIRECTORY, str(tmp_path))
    monkeypatch.setattr(probe, "_probe", None)

    probe.hit(-1)
    probe.hit(7)
    probe.hit(-1, times=100)

    hits = probe.read_hits(tmp_path)
    assert hits.calls == 102
    assert hits.first <= hits.last
    assert list(probe.read_starts(tmp_path)) == [7]


def test_without_a_hit_nothing_has_begun(tmp_path):
    assert probe.read_hits(tmp_path).calls == 0
