"""X2: `settings.CATBIRD` is one frozen, validated value."""

from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from catbird_django.conf import Settings, get_settings, problems


def test_every_setting_has_a_default() -> None:
    assert get_settings() == Settings()
    assert get_settings().lease == timedelta(seconds=30)


def test_durations_are_seconds_or_timedeltas(settings: Any) -> None:
    settings.CATBIRD = {"LEASE": 2.5, "POLL_INTERVAL": timedelta(minutes=1)}

    assert (get_settings().lease, get_settings().poll_interval) == (timedelta(seconds=2.5), timedelta(minutes=1))


def test_a_changed_setting_is_seen_at_once(settings: Any) -> None:
    settings.CATBIRD = {"CONCURRENCY": 3}
    assert get_settings().concurrency == 3

    settings.CATBIRD = {"CONCURRENCY": 4}
    assert get_settings().concurrency == 4


def test_nobody_can_change_the_value() -> None:
    with pytest.raises(FrozenInstanceError):
        get_settings().concurrency = 1  # type: ignore[misc] # on purpose


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("LEASE", 0, "longer than zero"),
        ("LEASE", -1, "longer than zero"),
        ("LEASE", "30", "or a timedelta"),
        ("LEASE", True, "or a timedelta"),
        ("LEASE", float("inf"), "at most ten years"),
        ("LEASE", float("nan"), "at most ten years"),
        ("LEASE", 1e300, "at most ten years"),
        ("DATABASE", [], "alias in DATABASES"),
        ("TASK_MODULES", ["a..b"], "names of modules"),
        ("CONCURRENCY", 0, "at least 1"),
        ("CONCURRENCY", 2.5, "at least 1"),
        ("NOTIFY", "yes", "True or False"),
        ("DATABASE", "nowhere", r"alias in DATABASES \(there: default\)"),
        ("LISTEN_DSN", "", "connection string"),
        ("TASK_MODULES", "tasks", "list of module names"),
        ("TASK_MODULES", ["not a module"], "names of modules"),
        ("MAX_PAYLOAD", None, "at least 1"),
    ],
)
def test_a_bad_value_is_named_and_never_used(settings: Any, key: str, value: object, complaint: str) -> None:
    settings.CATBIRD = {key: value}

    with pytest.raises(ImproperlyConfigured, match=rf"CATBIRD\['{key}'\] must .*{complaint}"):
        get_settings()


@pytest.mark.parametrize(
    ("typo", "meant"), [("LEASES", "LEASE"), ("concurrency", "CONCURRENCY"), ("PRE_FETCH", "PREFETCH")]
)
def test_an_unknown_key_comes_with_a_suggestion(settings: Any, typo: str, meant: str) -> None:
    settings.CATBIRD = {typo: 1}

    [problem] = problems()

    assert problem.is_unknown_key
    assert f"did you mean '{meant}'?" in problem.message


def test_a_key_like_no_other_comes_with_the_list_of_all(settings: Any) -> None:
    settings.CATBIRD = {"ZZZ": 1}

    [problem] = problems()

    assert all(field.name.upper() in problem.message for field in fields(Settings))


def test_everything_wrong_is_reported_together(settings: Any) -> None:
    settings.CATBIRD = {"LEASE": 0, "LEASSE": 1, "CONCURRENCY": -1}

    assert len(problems()) == 3


def test_something_else_than_a_dict_is_refused(settings: Any) -> None:
    settings.CATBIRD = ["LEASE"]

    with pytest.raises(ImproperlyConfigured, match="must be a dict"):
        get_settings()
