"""When Waymark reports that it cannot monitor, and when it only reports a warning."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from monitoring.broker import Heartbeat
from monitoring.models import Tick
from monitoring.reasons.archive import ArchiveReason
from monitoring.reasons.health import HealthReason, TaskName
from monitoring.reasons.reason import Reason, ReasonCode
from monitoring.selfwatch.own_facts import (
    Archive,
    ClusterLag,
    Database,
    Deliveries,
    Facts,
    Queue,
    Stored,
    Unavailable,
    periods,
)
from monitoring.selfwatch.verdict import Verdict, judge
from tests.monitoring.conftest import NOW

PERIODS = {"poll_clusters": timedelta(seconds=1), "ping_dead_man": timedelta(seconds=60)}


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def lag(lag_s: float = 0, *, reachable: bool = True) -> ClusterLag:
    return ClusterLag("east", reachable, False, lag_s, ago(lag_s), 0, 3)


def tick(**values: object) -> Tick:
    return Tick(**{"task": "poll_clusters", "ended_at": ago(1), **values})


LEADER, STANDBY = Heartbeat("beat", "a:1", ago(1), {"leads": True}), Heartbeat("beat", "b:1", ago(1), {"leads": False})
WORKER = Heartbeat("worker", "a:2", ago(2), {})
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


def queue(*heartbeats: Heartbeat) -> Verdict:
    return verdict(queue=Queue(0.001, 7, heartbeats))


def test_nothing_is_wrong() -> None:
    assert verdict() == Verdict((), ())
    assert verdict().healthy


FAILING = tick(ended_at=ago(70), failed_at=ago(1), failure="ValueError: no such thing")
BLIND = [
    (verdict(database=Unavailable("connection refused"), stored=None), "database", HealthReason.DATABASE_SILENT),
    (verdict(queue=Unavailable("connection refused")), "redis", HealthReason.REDIS_SILENT),
    (queue(STANDBY, WORKER), "beat", HealthReason.NO_BEAT),
    (queue(replace(LEADER, at=ago(40)), WORKER), "beat", HealthReason.NO_BEAT),
    (queue(LEADER), "worker", HealthReason.NO_WORKER_FOR_QUEUE),
    (queue(LEADER, replace(WORKER, at=ago(40))), "worker", HealthReason.NO_WORKER_FOR_QUEUE),
    (verdict(queue=Queue(0.001, 0, (LEADER,))), "worker", HealthReason.NO_WORKER),
    (stored(ticks={}), "poll_clusters", HealthReason.TASK_NEVER_ENDED),
    (stored(ticks={"poll_clusters": tick(ended_at=ago(70))}), "poll_clusters", HealthReason.TASK_OVERDUE),
    (stored(ticks={"poll_clusters": FAILING}), "poll_clusters", HealthReason.TASK_FAILS),
    (
        stored(ticks={"poll_clusters": tick(ended_at=None, failed_at=ago(1), failure="ValueError")}),
        "poll_clusters",
        HealthReason.TASK_FAILS,
    ),
    (stored(clusters=(lag(61), lag(300))), "clusters", HealthReason.NONE_POLLED),
    (stored(clusters=(lag(reachable=False), lag(reachable=False))), "clusters", HealthReason.ALL_SILENT),
]
MISSING = ArchiveReason.FILE(path="x", problem=ArchiveReason.MISSING())
ONE_OF_TWO, TWO_OF_THREE = HealthReason.OF_CLUSTERS(count=1, all=2), HealthReason.OF_CLUSTERS(count=2, all=3)
WARNED = [
    (stored(clusters=(lag(), lag(61))), "clusters", HealthReason.CLUSTER_OVERDUE(clusters=ONE_OF_TWO)),
    (stored(clusters=(lag(), lag(61), lag(62))), "clusters", HealthReason.CLUSTERS_OVERDUE(clusters=TWO_OF_THREE)),
    (stored(clusters=(lag(reachable=False), lag())), "clusters", HealthReason.CLUSTER_SILENT(clusters=ONE_OF_TWO)),
    (
        stored(clusters=(lag(reachable=False),)),
        "clusters",
        HealthReason.CLUSTER_SILENT(clusters=HealthReason.OF_CLUSTERS(count=1, all=1)),
    ),
    (
        stored(clusters=(lag(reachable=False), lag(reachable=False), lag())),
        "clusters",
        HealthReason.CLUSTERS_SILENT(clusters=TWO_OF_THREE),
    ),
    (
        stored(clusters=(replace(lag(), stranger=True), lag())),
        "clusters",
        HealthReason.ANOTHER_CLUSTER(clusters=ONE_OF_TWO),
    ),
    (verdict(database=Database(NOW, 0.001, 1, 45.0)), "clocks", HealthReason.CLOCK_AHEAD(length=45.0)),
    (verdict(database=Database(NOW, 0.001, 1, -90.0)), "clocks", HealthReason.CLOCK_BEHIND(length=90.0)),
    (stored(deliveries=Deliveries(1, 0, 0, ago(1200))), "notifications", HealthReason.DELIVERY_WAITS(length=1200.0)),
    (stored(deliveries=Deliveries(0, 9, 2)), "notifications", HealthReason.NOTIFICATIONS_GIVEN_UP(count=2)),
    (stored(deliveries=Deliveries(0, 9, 1)), "notifications", HealthReason.NOTIFICATIONS_GIVEN_UP(count=1)),
    (
        stored(archive=Archive(9, 9, 9, None, 1, MISSING)),
        "archive",
        HealthReason.ARCHIVED_FILES_UNREADABLE(count=1, problem=MISSING),
    ),
    (
        stored(archive=Archive(9, 9, 9, None, 2, MISSING)),
        "archive",
        HealthReason.ARCHIVED_FILES_UNREADABLE(count=2, problem=MISSING),
    ),
    (
        stored(history=HealthReason.PIPELINE_NEVER_STARTED()),
        "history",
        HealthReason.NO_ROLLUPS(why=HealthReason.PIPELINE_NEVER_STARTED()),
    ),
    (
        stored(ticks={**GOOD.stored.ticks, "ping_dead_man": tick(task="ping_dead_man", ended_at=ago(300))}),
        "ping_dead_man",
        HealthReason.TASK_OVERDUE(task=TaskName.PING_DEAD_MAN(), age=300.0),
    ),
]


@pytest.mark.parametrize(("found", "part", "code"), BLIND)
def test_each_of_these_problems_alone_makes_waymark_unhealthy(found: Verdict, part: str, code: ReasonCode) -> None:
    assert [(finding.part, finding.reason.code) for finding in found.problems] == [(part, code)]
    assert not found.healthy
    assert str(found.reason).startswith("Waymark cannot monitor the jobs: ")


@pytest.mark.parametrize(("found", "part", "reason"), WARNED)
def test_each_of_these_is_a_warning(found: Verdict, part: str, reason: Reason) -> None:
    assert found.healthy, "one silent cluster has an incident, and Waymark itself stays healthy"
    assert [(finding.part, finding.reason) for finding in found.warnings] == [(part, reason)]
    assert str(found.reason) == f"Waymark monitors the jobs, but a component needs attention. {reason}"


def test_waymark_without_clusters_is_healthy() -> None:
    assert stored(clusters=()).healthy


def test_a_failed_task_has_the_cause() -> None:
    [problem] = stored(ticks={"poll_clusters": FAILING}).problems
    late = HealthReason.TASK_OVERDUE(task=TaskName.POLL_CLUSTERS(), age=70.0)
    assert problem.reason == HealthReason.TASK_FAILS(what=late, failure="ValueError: no such thing")
    assert str(problem.reason) == (
        "The task “poll clusters” last completed 1 min 10 s ago; it fails: ValueError: no such thing."
    )


def test_a_task_that_failed_once_and_ran_since_is_well() -> None:
    assert stored(ticks={"poll_clusters": tick(failed_at=ago(9), failure="ValueError")}) == Verdict((), ())


def test_missing_roll_ups_are_a_warning():
    found = stored(history=HealthReason.PIPELINE_IS_BECAUSE(state="FAILED", why="no database."))
    assert found.healthy
    assert [(each.part, str(each.reason)) for each in found.warnings] == [
        (
            "history",
            "The history pipeline does not compute roll-ups, so long charts load slowly: it is FAILED: no database.",
        )
    ]


def test_every_periodic_task_has_a_name() -> None:
    assert {name.name.lower() for name in TaskName} == set(periods())
