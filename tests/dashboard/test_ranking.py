"""Lists and the pages of single jobs read the same facts, by different statements, and one rule judges both."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest

from dashboard.access.reach import FULL_REACH, Reach
from dashboard.access.roles import Role
from dashboard.health import judge, urgency
from dashboard.queries.facts import gather_facts, jobs_with_runs
from dashboard.queries.ranking import RankedJob, rank_jobs
from monitoring.models import (
    AttemptState,
    Checkpoint,
    CheckpointStatus,
    Cluster,
    Discovery,
    Incident,
    IncidentKind,
    IncidentState,
    Job,
    Run,
    RunState,
    Severity,
)
from monitoring.reasons.columns import columns
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
JOBS = 150
INTERVALS = (10_000, 10_000, 60_000, 3.5, 0, None, "10000", True, 2**63 - 1)


@pytest.mark.parametrize("seed", range(2))
def test_a_job_has_the_same_level_in_the_list_as_on_its_own_page(now: datetime, seed: int) -> None:
    _many_jobs(now, random.Random(seed))
    facts = gather_facts(jobs_with_runs(), now)
    ranked = rank(now)
    by_id = {row.signs.pk: row for row in ranked}
    assert len(by_id) == len(facts) == JOBS
    for each in facts:
        row, health = by_id[each.pk], judge(each, now)
        assert row.signs._replace(labels="{}") == each.signs
        assert row.health[:3] == (health.level, health.freshness, health.state_word), each.signs
        assert (row.health.intervals, row.health.lateness) == (health.intervals, health.lateness), each.signs
    expected = sorted(facts, key=lambda each: urgency(each.signs, judge(each, now)))
    assert [row.signs.pk for row in ranked] == [each.pk for each in expected]
    assert len({row.health.level for row in ranked}) == 6


def test_only_jobs_within_reach_are_ranked(now: datetime) -> None:
    clusters = [make.make_cluster(now, name) for name in ("a", "b", "c")]
    first, second, third = (make.make_job(cluster) for cluster in clusters)
    other = make.make_job(clusters[1], "other")

    def seen(**granted: dict[int, Role]) -> set[int]:
        return {row.signs.pk for row in rank(now, Reach(None, **granted))}

    assert {row.signs.pk for row in rank(now)} == {first.pk, second.pk, third.pk, other.pk}
    assert seen() == set()
    assert seen(jobs={second.pk: Role.VIEWER}) == {second.pk}
    assert seen(jobs={second.pk: Role.VIEWER}, clusters={clusters[2].pk: Role.OPERATOR}) == {second.pk, third.pk}
    Cluster.objects.filter(pk=clusters[1].pk).update(archived_at=now)
    assert seen(jobs={second.pk: Role.VIEWER}) == set()
    assert {row.signs.pk for row in rank(now)} == {first.pk, third.pk}


def rank(now: datetime, reach: Reach = FULL_REACH) -> list[RankedJob]:
    return rank_jobs(Cluster.objects.filter(archived_at=None).in_bulk(), now, reach)


def _many_jobs(now: datetime, dice: random.Random) -> None:
    """Create jobs with every combination of facts that their level depends on."""
    clusters = [
        *(make.make_cluster(now, name) for name in ("one", "two", "three")),
        make.make_cluster(now, "silent", unreachable_since=now - timedelta(minutes=3)),
        make.make_cluster(now, "off", enabled=False),
        *(make.make_cluster(now, kind, discovery=kind) for kind in (Discovery.DIRECTORY, Discovery.AGENT)),
    ]
    for number in range(JOBS):
        cluster = dice.choice([*clusters[:3], *clusters])
        job = make.make_job(cluster, f"{dice.choice('aBÄ中')}-{number:03}", labels={"team": f"t{number % 3}"})
        runs = [_run(job, now, dice) for _ in range(dice.randint(0, 3))]
        if runs and dice.random() < 0.2:
            Job.objects.filter(pk=job.pk).update(current_run=dice.choice([*runs, None]))
        if dice.random() < 0.25:
            _incidents(job, now, dice)
        if dice.random() < 0.15:
            make.make_attempt(job, now, dice.choice((AttemptState.LAUNCHING, AttemptState.FAILED)))


def _run(job: Job, now: datetime, dice: random.Random) -> Run:
    state = dice.choice([*RunState, *[RunState.RUNNING] * 12, RunState.RECONCILING])
    run = make.make_run(
        job,
        now,
        state=state,
        age=timedelta(seconds=dice.choice((5, 25, 600))),
        checkpoint_config=dice.choice(({}, {"interval": dice.choice(INTERVALS)}, {"interval": 10_000})),
        missing_since=now - timedelta(seconds=20) if dice.random() < 0.1 else None,
    )
    for number in range(dice.randint(0, 3)):
        at = now - timedelta(seconds=dice.choice((1, 12, 25, 45, 90, 4_000)), microseconds=dice.randrange(10**6))
        Checkpoint.objects.create(
            run=run,
            checkpoint_id=number,
            status=dice.choice((CheckpointStatus.COMPLETED, CheckpointStatus.COMPLETED, CheckpointStatus.FAILED)),
            is_savepoint=dice.random() < 0.2,
            triggered_at=at,
            latest_ack_at=at,
            end_to_end_duration=dice.choice((None, 0, 600, 20_000)),
            state_size=dice.choice((None, 10**9)),
        )
    return run


def _incidents(job: Job, now: datetime, dice: random.Random) -> None:
    for kind in dice.sample([IncidentKind.FAILED_IN_WINDOW, IncidentKind.NOT_RESTARTED], dice.randint(1, 2)):
        Incident.objects.create(
            job=job,
            cluster=job.cluster,
            kind=kind,
            state=dice.choice([*IncidentState]),
            severity=dice.choice([*Severity]),
            opened_at=now,
            **columns("sentence", make.failed_in_window(job.name)),
        )
