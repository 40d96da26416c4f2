"""One cluster, on which every scenario is played once; several at the same time, where none disturbs the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import override_settings
from pytest_django.plugin import DjangoDbBlocker

from tests.chaos.campaign import Result, rounds
from tests.chaos.cluster import Cluster, private_cluster
from tests.chaos.scenario import all_scenarios

JOBS = 4
ALL_EVENTS = {"EVENTS": "all"}  # so that the doctor can judge every run's history, from its birth (E1)

Results = dict[str, Result]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with private_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest, cluster: Cluster, django_db_blocker: DjangoDbBlocker) -> Results:
    """What came of one short round of each scenario that was asked for."""
    known = all_scenarios()
    wanted = [known[item.callspec.params["name"]] for item in request.session.items if "results" in item.fixturenames]
    with django_db_blocker.unblock(), override_settings(CATBIRD=ALL_EVENTS):
        played = rounds(cluster, wanted, count=1, seed=1, jobs=JOBS, is_short=True)
        return {result.scenario: result for result in played}
