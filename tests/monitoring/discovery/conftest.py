from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial

import pytest

from monitoring import clock
from monitoring.discovery.rounds import Rounds
from monitoring.models import DiscoverySource, SourceKind, WatchedKind
from tests.monitoring.discovery.played_kubernetes import PlayedKubernetes
from tests.monitoring.discovery.played_yarn import PlayedYarn
from tests.waiting import LIMIT_S, eventually

Look = Callable[..., None]


@pytest.fixture
def kubernetes() -> Iterator[PlayedKubernetes]:
    with PlayedKubernetes().serving() as api:
        yield api


@pytest.fixture
def source(kubernetes: PlayedKubernetes, transactional_db: None) -> DiscoverySource:
    return DiscoverySource.objects.create(name="east", kubeconfig=kubernetes.kubeconfig)


@pytest.fixture
def yarn() -> Iterator[PlayedYarn]:
    with PlayedYarn().serving() as resource_manager:
        yield resource_manager


@pytest.fixture
def yarn_source(yarn: PlayedYarn, transactional_db: None) -> DiscoverySource:
    kind = SourceKind.YARN
    return DiscoverySource.objects.create(
        name="hadoop", kind=kind, addresses=yarn.url, address_pattern=kind.usual_pattern
    )


def now_in_a_thread() -> datetime:
    """Return the time. The clock asks the database, so an event loop must not read it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return clock.now()
    raise AssertionError("the clock is read in an event loop")


@pytest.fixture
def look() -> Look:
    """Return a function that runs one round of all due sources to its end, and raises an unexpected error.

    If `meanwhile` is given, the round lasts until it returns.
    """

    def run(lasts_s: float = 0.0, meanwhile: Callable[[], object] | None = None) -> None:
        errors: list[Exception] = []
        rounds = Rounds(LIMIT_S if meanwhile else lasts_s, now_in_a_thread)
        DiscoverySource.objects.update(next_look_at=None)
        rounds.start_due(lambda report: None, lambda name, error: errors.append(error))
        try:
            if meanwhile:
                meanwhile()
        finally:
            if meanwhile:
                rounds.end()
            rounds.join(120)
            if errors:
                raise errors[0]

    return run


@pytest.fixture
def watch(kubernetes: PlayedKubernetes, look: Look) -> Callable[[], object]:
    """Return a function that runs rounds until each kind without a problem has applied all changes.

    On a busy machine the time of a round can be over before all its watches are open.
    """

    def is_current() -> bool:
        look(lasts_s=1.5)
        return all(row.problem or row.version == str(kubernetes.version) for row in WatchedKind.objects.all())

    return partial(eventually, "all changes are applied", is_current)
