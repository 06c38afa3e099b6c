from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dashboard.health import Freshness, JobFacts, Level, judge
from monitoring.models import Cluster, Job, Run, RunState, Severity

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)


def facts(state: RunState = RunState.RUNNING, last_completed_s: float | None = 4, **changes: object) -> JobFacts:
    cluster = Cluster(name="eu-prod", last_answer_at=NOW)
    run = Run(
        number=1,
        state=state,
        observed_at=NOW,
        started_at=NOW - timedelta(hours=1),
        checkpoint_config={"interval": 10_000},
    )
    completed = None if last_completed_s is None else NOW - timedelta(seconds=last_completed_s)
    known = JobFacts(Job(name="flights"), cluster, run, completed, last_duration_ms=600)
    return replace(known, **changes)  # type: ignore[arg-type]


def test_a_running_job_with_fresh_checkpoints_is_healthy_and_says_nothing() -> None:
    health = judge(facts(), NOW)
    assert (health.level, health.state_word, health.sentence) == (Level.HEALTHY, "RUNNING", "")


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.FAILING, RunState.RESTARTING, RunState.LOST])
def test_a_dead_or_restarting_job_is_failing(state: RunState) -> None:
    assert judge(facts(state), NOW).level is Level.FAILING


@pytest.mark.parametrize("state", [RunState.FINISHED, RunState.CANCELED])
def test_finished_or_canceled_job_is_not_a_problem(state: RunState) -> None:
    health = judge(facts(state, last_completed_s=9_000), NOW)
    assert (health.level, health.freshness) == (Level.ENDED, Freshness.ENDED)


def test_jobs_of_an_unreachable_cluster_are_unknown() -> None:
    silent = Cluster(
        name="apac", unreachable_since=NOW - timedelta(minutes=9), last_answer_at=NOW - timedelta(minutes=9)
    )
    health = judge(facts(RunState.FAILED, cluster=silent), NOW)
    assert (health.level, health.state_word, health.freshness) == (Level.UNKNOWN, "unknown", Freshness.UNKNOWN)
    assert "apac has not answered for 9 min" in health.sentence


def test_jobs_are_unknown_when_polling_has_stopped() -> None:
    forgotten = Cluster(name="waymark", last_answer_at=NOW - timedelta(minutes=5))
    health = judge(facts(cluster=forgotten), NOW)
    assert health.level is Level.UNKNOWN
    assert "Not polled for 5 min" in health.sentence


def test_job_missing_at_the_engine_is_unknown_until_it_is_lost() -> None:
    known = facts(last_completed_s=90)
    assert known.run is not None
    known.run.missing_since = NOW - timedelta(seconds=45)
    health = judge(known, NOW)
    assert (health.level, health.state_word, health.freshness) == (Level.UNKNOWN, "unknown", Freshness.UNKNOWN)
    assert health.sentence == (
        "The engine has not reported this job for 45 s. If this continues, the job counts as LOST."
    )


def test_an_open_incident_degrades_and_a_critical_one_fails() -> None:
    warned = facts(incidents=1, worst_severity=Severity.WARNING, incident_sentence="4 failed.")
    assert judge(warned, NOW).level is Level.DEGRADED
    assert judge(replace(warned, worst_severity=Severity.CRITICAL), NOW).level is Level.FAILING


@pytest.mark.parametrize(
    ("age_s", "expected"),
    [(10, Freshness.FRESH), (15, Freshness.DUE), (30, Freshness.LATE), (61, Freshness.OVERDUE)],
)
def test_lateness_is_counted_in_the_jobs_own_intervals(age_s: float, expected: Freshness) -> None:
    assert judge(facts(last_completed_s=age_s), NOW).freshness is expected


def test_a_new_run_owes_its_first_checkpoint_from_its_own_start() -> None:
    known = facts(last_completed_s=900)
    assert known.run is not None
    known.run.started_at = NOW - timedelta(seconds=5)
    assert judge(known, NOW).freshness is Freshness.FRESH


@pytest.mark.parametrize("interval", [None, 2**63 - 1])
def test_without_periodic_checkpoints_nothing_is_late(interval: int | None) -> None:
    known = facts(last_completed_s=90_000)
    assert known.run is not None
    known.run.checkpoint_config = {"interval": interval}
    assert judge(known, NOW).level is Level.HEALTHY
