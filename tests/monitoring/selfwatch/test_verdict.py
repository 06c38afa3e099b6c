"""When Waymark says that it is blind, and when it only has a warning."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from monitoring.broker import Sign
from monitoring.models import Tick
from monitoring.selfwatch.own_facts import Archive, Away, ClusterLag, Database, Deliveries, Facts, Queue, Stored
from monitoring.selfwatch.verdict import Verdict, judge
from tests.monitoring.conftest import NOW

PERIODS = {"poll_clusters": timedelta(seconds=1), "ping_dead_man": timedelta(seconds=60)}


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def lag(lag_s: float = 0, *, reachable: bool = True) -> ClusterLag:
    return ClusterLag("east", reachable, False, lag_s, ago(lag_s), 0, 3)


def tick(**values: object) -> Tick:
    return Tick(**{"task": "poll_clusters", "ended_at": ago(1), **values})


LEADER, STANDBY = Sign("beat", "a:1", ago(1), {"leads": True}), Sign("beat", "b:1", ago(1), {"leads": False})
WORKER = Sign("worker", "a:2", ago(2), {})
GOOD = Facts(
    at=NOW,
    database=Database(NOW, 0.001, 10_000_000, 0.0),
    queue=Queue(0.001, 0, (LEADER, STANDBY, WORKER)),
    periods=PERIODS,
    stored=Stored(ticks={"poll_clusters": tick()}, clusters=(lag(), lag(2))),
)


def verdict(**changes: object) -> Verdict:
    return judge(replace(GOOD, **changes), 60)


def stored(**changes: object) -> Verdict:
    return verdict(stored=replace(GOOD.stored, **changes))


def queue(*signs: Sign) -> Verdict:
    return verdict(queue=Queue(0.001, 7, signs))


def parts(found: Verdict) -> list[str]:
    return [finding.part for finding in found.problems]


def test_nothing_is_wrong() -> None:
    assert verdict() == Verdict((), ())
    assert verdict().healthy


FAILING = tick(ended_at=ago(70), failed_at=ago(1), failure="ValueError: no such thing")
BLIND = [
    (verdict(database=Away("connection refused"), stored=None), "database"),
    (verdict(queue=Away("connection refused")), "redis"),
    (queue(STANDBY, WORKER), "beat"),
    (queue(replace(LEADER, at=ago(40)), WORKER), "beat"),
    (queue(LEADER), "worker"),
    (queue(LEADER, replace(WORKER, at=ago(40))), "worker"),
    (stored(ticks={}), "poll_clusters"),
    (stored(ticks={"poll_clusters": tick(ended_at=ago(70))}), "poll_clusters"),
    (stored(ticks={"poll_clusters": FAILING}), "poll_clusters"),
    (stored(ticks={"poll_clusters": tick(ended_at=None, failed_at=ago(1), failure="ValueError")}), "poll_clusters"),
    (stored(clusters=(lag(61), lag(300))), "clusters"),
    (stored(clusters=(lag(reachable=False), lag(reachable=False))), "clusters"),
]
WARNED = [
    (stored(clusters=(lag(), lag(61))), "clusters", "1 of 2 clusters has not been asked in time"),
    (stored(clusters=(lag(), lag(61), lag(62))), "clusters", "2 of 3 clusters have not been asked in time"),
    (stored(clusters=(lag(reachable=False), lag())), "clusters", "1 of 2 clusters gives no answer"),
    (stored(clusters=(lag(reachable=False),)), "clusters", "1 of 1 cluster gives no answer"),
    (stored(clusters=(replace(lag(), stranger=True), lag())), "clusters", "At the address of 1 of 2 clusters"),
    (verdict(database=Database(NOW, 0.001, 1, 45.0)), "clocks", "45 s ahead of the database's"),
    (verdict(database=Database(NOW, 0.001, 1, -90.0)), "clocks", "1 min 30 s behind the database's"),
    (stored(deliveries=Deliveries(1, 0, 0, ago(1200))), "notifications", "has waited for 20 min"),
    (stored(deliveries=Deliveries(0, 9, 2)), "notifications", "2 notifications of the last day"),
    (stored(deliveries=Deliveries(0, 9, 1)), "notifications", "1 notification of the last day"),
    (stored(archive=Archive(9, 9, 9, None, 1, "x: it is missing")), "archive", "1 file of the history's archive"),
    (stored(archive=Archive(9, 9, 9, None, 2, "x: it is missing")), "archive", "2 files of the history's archive"),
    (stored(history="it was never started"), "history", "long charts take longer: it was never started."),
    (
        stored(ticks={**GOOD.stored.ticks, "ping_dead_man": tick(task="ping_dead_man", ended_at=ago(300))}),
        "ping_dead_man",
        "last came to its end 5 min ago",
    ),
]


@pytest.mark.parametrize(("found", "part"), BLIND)
def test_each_of_these_alone_makes_it_blind(found: Verdict, part: str) -> None:
    assert parts(found) == [part]
    assert not found.healthy
    assert found.sentence.startswith("Waymark is blind: ")


@pytest.mark.parametrize(("found", "part", "words"), WARNED)
def test_each_of_these_is_a_warning(found: Verdict, part: str, words: str) -> None:
    assert found.healthy, "nobody is woken because of one silent cluster: it has an incident of its own"
    assert [finding.part for finding in found.warnings] == [part]
    assert words in found.warnings[0].sentence


def test_no_cluster_at_all_is_no_blindness() -> None:
    assert stored(clusters=()).healthy


def test_a_task_that_fails_says_why() -> None:
    [problem] = stored(ticks={"poll_clusters": FAILING}).problems
    assert "1 min 10 s ago; it fails: ValueError: no such thing" in problem.sentence


def test_a_task_that_failed_once_and_ran_since_is_well() -> None:
    assert stored(ticks={"poll_clusters": tick(failed_at=ago(9), failure="ValueError")}) == Verdict((), ())


def test_roll_ups_that_are_not_made_are_a_warning():
    found = stored(history="it is FAILED: no database.")
    assert found.healthy
    assert [(each.part, each.sentence) for each in found.warnings] == [
        (
            "history",
            "The history's roll-ups are not being made, so long charts take longer: it is FAILED: no database.",
        )
    ]
