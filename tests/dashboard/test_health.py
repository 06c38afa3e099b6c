from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dashboard.health import Freshness, JobFacts, Level, judge, urgency
from monitoring.models import Cluster, Job, Run, RunState, Severity
from monitoring.reasons.engines import EngineReason

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


def test_a_running_job_with_fresh_checkpoints_is_healthy_without_a_sentence() -> None:
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


def test_a_job_whose_cluster_has_ended_with_it_has_its_last_state() -> None:
    since = NOW - timedelta(minutes=9)
    ended = Cluster(name="apac", unreachable_since=since, last_error_value=EngineReason.CLUSTER_ENDED())
    health = judge(facts(RunState.FAILED, cluster=ended), NOW)
    assert (health.level, health.state_word) == (Level.FAILING, "FAILED")
    ended.stranger = {"kind": "addresses"}
    assert judge(facts(RunState.FAILED, cluster=ended), NOW).level is Level.UNKNOWN


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
def test_lateness_is_relative_to_the_interval_of_the_job(age_s: float, expected: Freshness) -> None:
    assert judge(facts(last_completed_s=age_s), NOW).freshness is expected


def test_the_first_checkpoint_of_a_run_is_due_relative_to_its_start() -> None:
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


@pytest.mark.parametrize(("age_s", "expected"), [(15, Level.HEALTHY), (30, Level.DEGRADED), (61, Level.OVERDUE)])
def test_late_and_overdue_are_two_levels(age_s: float, expected: Level) -> None:
    assert judge(facts(last_completed_s=age_s), NOW).level is expected


def test_an_incident_does_not_lower_the_level_of_an_overdue_job() -> None:
    warned = facts(last_completed_s=61, incidents=1, worst_severity=Severity.WARNING, incident_sentence="4 failed.")
    health = judge(warned, NOW)
    assert (health.level, health.sentence) == (Level.OVERDUE, "4 failed.")
    assert judge(replace(warned, worst_severity=Severity.CRITICAL), NOW).level is Level.FAILING


def test_lateness_is_the_wait_in_relation_to_the_jobs_own_limit() -> None:
    """The limit is two intervals and the duration of the last checkpoint."""
    assert judge(facts(last_completed_s=40, last_duration_ms=0), NOW).lateness == pytest.approx(2.0)
    assert judge(facts(last_completed_s=40, last_duration_ms=20_000), NOW).lateness == pytest.approx(1.0)
    assert judge(facts(RunState.FAILED, last_completed_s=40), NOW).lateness == 0.0


def by_urgency(*known: JobFacts) -> list[str]:
    return [each.name for each in sorted(known, key=lambda each: urgency(each.signs, judge(each, NOW)))]


def named(name: str, state: RunState = RunState.RUNNING, last_completed_s: float = 4, **changes: object) -> JobFacts:
    return facts(state, last_completed_s, job=Job(pk=1, name=name), **changes)


def test_the_level_comes_first_in_the_order() -> None:
    failing, overdue = named("d", RunState.FAILED), named("c", last_completed_s=900)
    late, ended = named("b", last_completed_s=30), named("a", RunState.FINISHED)
    assert by_urgency(ended, named("healthy"), late, overdue, failing) == ["d", "c", "b", "healthy", "a"]


def test_a_critical_incident_comes_before_other_failing_jobs() -> None:
    critical = named("b", RunState.FAILED, incidents=1, worst_severity=Severity.CRITICAL)
    assert by_urgency(named("a", RunState.FAILED, 900), critical) == ["b", "a"]


def test_lateness_counts_more_than_the_wait() -> None:
    """One job waits for 100 s with an interval of 10 s, the other for 400 s with an interval of 60 s."""
    slow = named("a", last_completed_s=400)
    assert slow.run is not None
    slow.run.checkpoint_config = {"interval": 60_000}
    assert by_urgency(slow, named("b", last_completed_s=100)) == ["b", "a"]


def test_the_job_without_a_checkpoint_for_the_longest_time_comes_first() -> None:
    dead = [named(name, RunState.FAILED, age) for name, age in (("a", 5), ("b", 500), ("c", 50))]
    assert by_urgency(*dead) == ["b", "c", "a"]


def test_jobs_in_time_keep_the_order_of_their_names() -> None:
    assert by_urgency(named("B", last_completed_s=1), named("c", last_completed_s=3), named("a")) == ["a", "B", "c"]
