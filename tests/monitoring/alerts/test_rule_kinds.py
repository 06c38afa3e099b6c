"""The rule table: for every kind of rule, stored rows, and exactly when the rule opens and closes.

Every case runs as a backtest, and as live evaluation in many steps, whose incidents are compared.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from monitoring.alerts.backtest import Watched, replay
from monitoring.alerts.defaults import ensure_default_rules
from monitoring.alerts.evaluation import evaluate_due
from monitoring.alerts.gathering.ages import LIMIT
from monitoring.alerts.gathering.query import select
from monitoring.alerts.gathering.runs import runs_of
from monitoring.alerts.kinds import kinds
from monitoring.alerts.kinds.base import Subject
from monitoring.alerts.kinds.no_completed_checkpoint import derived_limit_s
from monitoring.alerts.memory import WAYMARK
from monitoring.alerts.scope import watch_of
from monitoring.models import AlertRule, Cluster, Incident, IncidentEvent, OutageKind, Run, SavepointState
from monitoring.reasons.reason import Reason, render
from tests.monitoring.alerts.rule_stories import CONFIG, DAY, HOUR, Case, Story, in_minutes

CASES = [
    Case("failed_in_window", "the threshold opens, one less does not", lambda s: s.failed(100, 200), []),
    Case(
        "failed_in_window",
        "it opens with the third and closes as the first leaves",
        lambda s: s.failed(100, 200, 300),
        [(300, 1000)],
    ),
    Case(
        "failed_in_window",
        "a window of exactly the distance does not hold both",
        lambda s: s.failed(100, 160),
        [],
        {"threshold": 2, "window_s": 60},
    ),
    Case(
        "failed_in_window",
        "one that is a hair longer does",
        lambda s: s.failed(100, 159.999),
        [(159.999, 160)],
        {"threshold": 2, "window_s": 60},
    ),
    Case(
        "failed_in_window",
        "ids of two runs are distinct",
        lambda s: (s.failed(100), s.starts_again(110), s.failed(120)),
        [(120, 160)],
        {"threshold": 2, "window_s": 60},
    ),
    Case(
        "failed_in_window",
        "trouble shorter than the open-hold opens nothing",
        lambda s: s.failed(100, 100, 100),
        [],
        {"window_s": 60, "open_hold_s": 60},
    ),
    Case(
        "failed_in_window",
        "trouble a hair longer opens when the hold is over",
        lambda s: s.failed(100, 100, 100, 100.001),
        [(160, 160.001)],
        {"window_s": 60, "open_hold_s": 60, "threshold": 1},
    ),
    Case(
        "failed_in_window",
        "the close-hold keeps it open over a lull",
        lambda s: s.failed(100, 200),
        [(100, 320)],
        {"threshold": 1, "window_s": 60, "close_hold_s": 60},
    ),
    Case(
        "failed_in_window",
        "the fourth opening within the hour is one flapping incident",
        lambda s: s.failed(*in_minutes(1, 3, 5, 7, 9, 11)),
        [(60, 120), (180, 240), (300, 360), (420, 11 * 60 + 60 + HOUR)],
        {"threshold": 1, "window_s": 60},
        until=3 * HOUR,
        step=HOUR,
    ),
    Case(
        "failed_in_total", "counts all there are", lambda s: s.failed(-5000, 100, 200), [(200, None)], {"threshold": 3}
    ),
    Case(
        "failed_in_total",
        "counts only from its day on",
        lambda s: s.failed(-13 * HOUR, 100, 200),
        [(200, None)],
        {"threshold": 2, "parameters": {"since": "2026-11-21"}},
    ),
    Case(
        "failed_in_total",
        "counts the first moment of its day",
        lambda s: s.failed(-12 * HOUR, 100, 200),
        [(200, None)],
        {"threshold": 3, "parameters": {"since": "2026-11-21"}},
    ),
    Case(
        "failed_in_window",
        "a requested stop with a savepoint aborts one that does not count",
        lambda s: (s.failed(100, 200), s.stop_requested(290), s.aborted(300)),
        [],
    ),
    Case(
        "failed_in_window",
        "an abort without a request counts",
        lambda s: (s.failed(100, 200), s.aborted(300)),
        [(300, 1000)],
    ),
    Case(
        "failed_in_window",
        "a failure for another reason counts in spite of a request",
        lambda s: (s.failed(100, 200), s.stop_requested(290), s.failed(300)),
        [(300, 1000)],
    ),
    Case(
        "failed_in_window",
        "an abort after a failed stop counts",
        lambda s: (
            s.failed(100, 200),
            s.stop_requested(210, SavepointState.FAILED, deadline_at=s.at(250)),
            s.aborted(300),
        ),
        [(300, 1000)],
    ),
    Case(
        "failed_in_window",
        "a requested restart aborts one that does not count",
        lambda s: (s.failed(100, 200), s.attempt(290, 400, old_run=s.run), s.aborted(300)),
        [],
    ),
    Case(
        "failed_in_window",
        "an abort after the restart counts",
        lambda s: (s.failed(100, 200), s.attempt(210, 250, old_run=s.run), s.aborted(300)),
        [(300, 1000)],
    ),
    Case(
        "failed_in_window",
        "an abort right before an automatic restart counts",
        lambda s: (s.failed(100, 200), s.aborted(300), s.attempt(302, 400, "automatic", old_run=s.run)),
        [(300, 1000)],
    ),
    Case(
        "failed_in_window",
        "a requested cancellation aborts one that does not count",
        lambda s: (s.failed(100, 200), s.cancel_requested(299), s.aborted(300)),
        [],
    ),
    Case(
        "failed_in_window",
        "the cancellation of another run excuses none",
        lambda s: (s.failed(100, 200), s.cancel_requested(299, run=7, engine_job_id="7" * 32), s.aborted(300)),
        [(300, 1000)],
    ),
    Case(
        "failed_in_total",
        "aborted on request ones do not count",
        lambda s: (s.failed(100), s.stop_requested(190), s.aborted(200)),
        [],
        {"threshold": 2},
    ),
    Case(
        "consecutive_failures",
        "aborted on request ones do not count and do not end the row",
        lambda s: (s.failed(10, 20), s.attempt(25, 35, old_run=s.run), s.aborted(30), s.failed(60)),
        [(60, None)],
        {"threshold": 3},
    ),
    Case(
        "consecutive_failures",
        "a completed one in between resets the count",
        lambda s: (s.failed(10, 20), s.completed(30), s.failed(40, 50)),
        [],
        {"threshold": 3},
    ),
    Case(
        "consecutive_failures",
        "opens with the third, closes with the next completed one",
        lambda s: (s.failed(10, 20, 30, 40), s.completed(50)),
        [(30, 50)],
        {"threshold": 3},
    ),
    Case(
        "consecutive_failures",
        "a completed savepoint in between does not count",
        lambda s: (s.failed(10, 20), s.completed(25, is_savepoint=True), s.failed(30)),
        [(30, None)],
        {"threshold": 3},
    ),
    Case("no_completed_checkpoint", "never one: counted from the run's start", lambda s: None, [(900, None)]),
    Case(
        "no_completed_checkpoint",
        "derived: max(interval, timeout) × (tolerable + 2)",
        lambda s: s.completed(100, 1000, 1900.001),
        [(1900, 1900.001), (2800.001, None)],
    ),
    Case(
        "no_completed_checkpoint",
        "derived: at most 10 × the longer of interval and timeout",
        lambda s: s.configured(tolerable_failed_checkpoints=100_000),
        [(3000, None)],
    ),
    Case(
        "no_completed_checkpoint",
        "derived: 30 min if 10 × the longer of interval and timeout is less",
        lambda s: s.configured(interval=5000, timeout=6000, tolerable_failed_checkpoints=100_000),
        [(1800, None)],
    ),
    Case(
        "no_completed_checkpoint", "one in time keeps it quiet", lambda s: s.completed(*range(100, HOUR + 1, 899)), []
    ),
    Case(
        "no_completed_checkpoint",
        "a set time is taken instead",
        lambda s: s.completed(30, 100),
        [(90, 100), (160, None)],
        {"threshold": 60},
    ),
    Case("no_completed_checkpoint", "a run that ended owes none", lambda s: s.ends(500, "CANCELED"), []),
    Case(
        "no_completed_checkpoint",
        "a new run starts its own time",
        lambda s: (s.ends(500, "FAILED"), s.starts_again(600)),
        [(1500, None)],
    ),
    Case(
        "no_completed_checkpoint",
        "silence of the cluster proves nothing",
        lambda s: (s.completed(10, 2000, 2500, 3000, 3500), s.outage(500, 2000)),
        [],
    ),
    Case(
        "end_to_end_duration",
        "the threshold itself opens, a completed one below it closes",
        lambda s: (
            s.completed(10, end_to_end_duration=59_999),
            s.completed(20, end_to_end_duration=60_000),
            s.completed(30, end_to_end_duration=100),
        ),
        [(20, 30)],
    ),
    Case(
        "end_to_end_duration",
        "savepoints are another matter",
        lambda s: s.completed(20, end_to_end_duration=90_000, is_savepoint=True),
        [],
    ),
    Case(
        "alignment",
        "of the slowest subtask",
        lambda s: (
            s.completed(10, alignment_max=499),
            s.completed(20, alignment_max=500),
            s.completed(30, alignment_max=499),
        ),
        [(20, 30)],
        {"threshold": 500},
    ),
    Case(
        "start_delay",
        "of the slowest subtask",
        lambda s: (s.completed(10, start_delay_max=29_999), s.completed(20, start_delay_max=30_000)),
        [(20, None)],
    ),
    Case("state_size", "absolute", lambda s: s.sized(_10=999, _20=1000, _30=999), [(20, 30)], {"threshold": 1000}),
    Case(
        "state_size_relative",
        "against the p95 of the days before",
        lambda s: (
            s.completed(*range(-20 * HOUR, -13 * HOUR, HOUR), state_size=100),
            s.sized(_10=199, _20=200, _30=150),
        ),
        [(20, 30)],
        {"threshold": 200},
    ),
    Case(
        "state_size_relative",
        "without a day before there is nothing to compare with",
        lambda s: s.sized(_10=100, _20=10_000),
        [],
        {"threshold": 200},
    ),
    Case(
        "end_to_end_duration_relative",
        "against the p95 of the days before",
        lambda s: (
            s.completed(*range(-20 * HOUR, -13 * HOUR, HOUR), end_to_end_duration=2_000),
            s.completed(10, end_to_end_duration=5_999),
            s.completed(20, end_to_end_duration=6_000),
            s.completed(30, end_to_end_duration=5_000),
        ),
        [(20, 30)],
        {"threshold": 300},
    ),
    Case(
        "end_to_end_duration_relative",
        "against the same hour of the week, where three weeks tell it",
        lambda s: (
            s.completed(*(-7 * DAY * week + 60 for week in (1, 2, 3)), end_to_end_duration=10_000),
            s.completed(*range(-20 * HOUR, -13 * HOUR, HOUR), end_to_end_duration=2_000),
            s.completed(10, end_to_end_duration=19_999),
            s.completed(20, end_to_end_duration=20_000),
            s.completed(30, end_to_end_duration=15_000),
        ),
        [(20, 30)],
        {"threshold": 200, "parameters": {"days": 6, "weeks": 4}},
    ),
    Case(
        "end_to_end_duration_relative",
        "against the days before where only two weeks tell the hour",
        lambda s: (
            s.completed(*(-7 * DAY * week + 60 for week in (1, 2)), end_to_end_duration=10_000),
            s.completed(-7 * DAY * 3 - 2 * HOUR, end_to_end_duration=10_000),
            s.completed(*range(-20 * HOUR, -13 * HOUR, HOUR), end_to_end_duration=2_000),
            s.completed(10, end_to_end_duration=3_999),
            s.completed(20, end_to_end_duration=4_000),
        ),
        [(20, None)],
        {"threshold": 200, "parameters": {"days": 6, "weeks": 4}},
    ),
    Case(
        "end_to_end_duration_relative",
        "a p95 below the least counts as that",
        lambda s: (
            s.completed(*range(-20 * HOUR, -13 * HOUR, HOUR), end_to_end_duration=10),
            s.completed(10, end_to_end_duration=1_999),
            s.completed(20, end_to_end_duration=2_000),
        ),
        [(20, None)],
        {"threshold": 200},
    ),
    Case(
        "alignment_relative",
        "of a job whose subtasks never waited",
        lambda s: (
            s.completed(*range(-20 * HOUR, -13 * HOUR, HOUR), alignment_max=0),
            s.completed(10, alignment_max=1_999),
            s.completed(20, alignment_max=2_000),
            s.completed(30, alignment_max=3),
        ),
        [(20, 30)],
        {"threshold": 200},
    ),
    Case(
        "start_delay_relative",
        "of the slowest subtask",
        lambda s: (
            s.completed(*range(-20 * HOUR, -13 * HOUR, HOUR), start_delay_max=1_500),
            s.completed(10, start_delay_max=2_999),
            s.completed(20, start_delay_max=3_000),
        ),
        [(20, None)],
        {"threshold": 200},
    ),
    Case(
        "state_growth",
        "a day apart, on the hour",
        lambda s: s.sized(
            **{
                f"_{t}": v
                for t, v in ((50 * 60, 1000), (110 * 60, 1000), (DAY + 50 * 60, 2000), (DAY + 110 * 60, 1999))
            }
        ),
        [(DAY + HOUR, DAY + 2 * HOUR)],
        {"threshold": 1000},
        until=DAY + 3 * HOUR,
        step=8 * HOUR,
    ),
    Case(
        "savepoint_too_old",
        "counted from the last one",
        lambda s: (s.savepoint(10), s.savepoint(300)),
        [(110, 300), (400, None)],
        {"threshold": 100},
    ),
    Case(
        "savepoint_too_old",
        "one in time keeps it quiet",
        lambda s: [s.savepoint(t) for t in range(10, HOUR + 1, 99)],
        [],
        {"threshold": 100},
    ),
    Case(
        "savepoint_failed",
        "closes with the next good one",
        lambda s: (s.savepoint(100, SavepointState.FAILED), s.savepoint(200)),
        [(100, 200)],
    ),
    Case(
        "savepoint_failed",
        "two in a row are needed where two are asked for",
        lambda s: (s.savepoint(100, SavepointState.FAILED), s.savepoint(200), s.savepoint(300, SavepointState.FAILED)),
        [],
        {"threshold": 2},
    ),
    Case("job_failed", "until a new run", lambda s: (s.ends(500, "FAILED"), s.starts_again(700)), [(500, 700)]),
    Case("job_failed", "a lost one is dead, too", lambda s: s.ends(500, "LOST"), [(500, None)]),
    Case("job_failed", "one that was cancelled is not", lambda s: s.ends(500, "CANCELED"), []),
    Case(
        "run_missed",
        "counted from the first due time without a run, until a later run has finished",
        lambda s: (s.scheduled("*/10 * * * *"), s.runs(1810, 1900)),
        [(900, 1900)],
        {"threshold": 300},
        until=2400,
    ),
    Case(
        "run_missed",
        "runs that start and finish in time keep it quiet",
        lambda s: (s.scheduled("*/20 * * * *"), s.runs(1203, 1300), s.runs(2402, 2500)),
        [],
        {"threshold": 300},
        until=3000,
    ),
    Case(
        "run_missed",
        "one that takes too long",
        lambda s: (s.scheduled("*/20 * * * *"), s.runs(1203, 2000)),
        [(1500, 2000)],
        {"threshold": 300},
        until=2300,
    ),
    Case(
        "run_missed",
        "one that failed, until the next has not",
        lambda s: (s.scheduled("*/20 * * * *"), s.runs(1203, 1210, "FAILED"), s.runs(2402, 2450)),
        [(1500, 2450)],
        {"threshold": 300},
        until=2600,
    ),
    Case(
        "run_missed",
        "one that a person cancelled is dealt with",
        lambda s: (s.scheduled("*/20 * * * *"), s.runs(1203, 1210, "CANCELED")),
        [],
        {"threshold": 300},
        until=2300,
    ),
    Case(
        "run_missed",
        "one that was under way at the due time does not cover it",
        lambda s: (s.scheduled("*/20 * * * *"), s.runs(1000, 1400)),
        [(1500, None)],
        {"threshold": 300},
        until=2000,
    ),
    Case(
        "run_missed",
        "times before the schedule was set do not count",
        lambda s: s.scheduled("*/10 * * * *", since=1300),
        [(2100, None)],
        {"threshold": 300},
        until=2300,
    ),
    Case("run_missed", "a job without a schedule is never late", lambda s: s.ends(100, "FINISHED"), []),
    Case(
        "restart_loop",
        "runs of a job that ends by itself are no restarts",
        lambda s: [s.runs(60 * minute, 60 * minute + 20, saved=True) for minute in range(1, 50)],
        [],
        {"threshold": 3},
    ),
    Case(
        "restart_loop",
        "the engine's own and new runs, in the window",
        lambda s: (s.restarts(100, 200), s.ends(250, "FAILED"), s.starts_again(300)),
        [(300, 700)],
        {"threshold": 3, "window_s": 600},
    ),
    Case(
        "restart_loop",
        "a restart that a person requests does not count",
        lambda s: (
            s.restarts(100, 200),
            s.ends(250, "CANCELED"),
            s.starts_again(300),
            s.attempt(240, 350, engine_job_id=s.run.engine_job_id),
        ),
        [],
        {"threshold": 3, "window_s": 600},
    ),
    Case(
        "restart_loop",
        "an automatic restart counts",
        lambda s: (
            s.restarts(100, 200),
            s.ends(250, "FAILED"),
            s.starts_again(300),
            s.attempt(260, 350, "automatic", new_run=s.run, engine_job_id=s.run.engine_job_id),
        ),
        [(300, 700)],
        {"threshold": 3, "window_s": 600},
    ),
    Case("restart_loop", "one less is none", lambda s: s.restarts(100, 200), [], {"threshold": 3, "window_s": 600}),
    Case(
        "data_loss_risk",
        "before the source has forgotten, also of a dead job",
        lambda s: (s.completed(100), s.ends(200, "FAILED")),
        [(100 + 2000, None)],
        {"threshold": 3000, "parameters": {"lead_s": 1000}},
    ),
    Case(
        "data_loss_risk",
        "a savepoint is state, too",
        lambda s: (s.completed(100), s.completed(2000, is_savepoint=True)),
        [],
        {"threshold": 3000, "parameters": {"lead_s": 1000}},
    ),
    Case(
        "data_loss_risk",
        "a job that was ended risks none",
        lambda s: (s.completed(100), s.ends(200, "FINISHED")),
        [],
        {"threshold": 3000, "parameters": {"lead_s": 1000}},
    ),
    Case(
        "objective_budget",
        "from the end of the day that used up 80 % of it to the end of the next good one",
        lambda s: s.budget((1000, 9), (1000, 0), (1000, 7)),
        [(12 * HOUR, 36 * HOUR)],
        until=2.9 * DAY,
        step=5 * HOUR,
    ),
    Case(
        "objective_budget",
        "exactly all of it is all of it",
        lambda s: s.budget((1000, 1), percent=99.9),
        [(12 * HOUR, None)],
        {"threshold": 100, "parameters": {}},
        until=DAY,
        step=5 * HOUR,
    ),
    Case(
        "objective_budget",
        "a day without checkpoints uses none",
        lambda s: s.budget((0, 0)),
        [],
        until=DAY,
        step=5 * HOUR,
    ),
    Case("cluster_unreachable", "after its time, until it answers", lambda s: s.outage(100, 400), [(160, 400)]),
    Case("cluster_unreachable", "a shorter one is none", lambda s: s.outage(100, 160), []),
    Case(
        "another_cluster",
        "until the known cluster answers again",
        lambda s: s.outage(100, 400, OutageKind.ANOTHER_CLUSTER),
        [(160, 400)],
    ),
    Case("deployment_problem", "after its time", lambda s: s.deployment_problem(100), [(400, None)]),
    Case("deployment_problem", "silence is no problem of the deployment", lambda s: s.outage(100, 1000), []),
    Case("another_cluster", "silence is no stranger", lambda s: s.outage(100, 400), []),
    Case("cluster_unreachable", "another cluster", lambda s: s.outage(100, 400, OutageKind.ANOTHER_CLUSTER), []),
    Case(
        "waymark_blind",
        "reported when polling resumes",
        lambda s: s.outage(100, 400, OutageKind.NOT_POLLED),
        [(220, 400)],
    ),
    Case("waymark_blind", "a shorter one is none", lambda s: s.outage(100, 219, OutageKind.NOT_POLLED), []),
]


def named(case: Case) -> str:
    return f"{case.kind}: {case.name}"


def test_the_table_has_every_kind() -> None:
    assert {case.kind for case in CASES} == set(kinds())


@pytest.fixture
def story(rows) -> Story:
    job = rows.job(name="flights-by-route")
    type(job).objects.filter(pk=job.pk).update(created_at=rows.now)
    Cluster.objects.update(next_poll_at=rows.now + timedelta(days=30))
    return Story(rows, rows.run(job, started_at=rows.now, checkpoint_config=CONFIG))


def rule_of(case: Case, story: Story) -> AlertRule:
    own = kinds()[case.kind].subject is Subject.JOB
    return AlertRule.objects.create(
        **{
            "name": "" if own else "wide",
            "job": story.run.job if own else None,
            "kind": case.kind,
            "check_every_s": 5,
            **case.rule,
        }
    )


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_rule_opens_and_closes_incidents_exactly_at_the_expected_times(case: Case, story: Story, rows) -> None:
    ensure_default_rules()
    AlertRule.objects.update(enabled=False)
    rule_of(case, story)
    evaluate_due(rows.now)
    case.tell(story)
    moment = 0.0
    while moment < case.until:
        moment = min(case.until, moment + case.step)
        evaluate_due(story.at(moment))

    found = Incident.objects.filter(kind=case.kind).order_by("opened_at").values_list("opened_at", "resolved_at")
    assert [seconds(rows.now, *each) for each in found] == case.expected
    for event in IncidentEvent.objects.filter(incident__kind=case.kind):
        assert isinstance(event.text_value, Reason)
        assert event.text == str(event.text_value)
        assert has_chinese(render(event.text_value, "zh-hans")), event.text


def has_chinese(text: str) -> bool:
    return any("\u4e00" <= letter <= "\u9fff" for letter in text)


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_backtest_finds_the_same(case: Case, story: Story, rows) -> None:
    rule = rule_of(case, story)
    case.tell(story)

    replayed = replay(watch_of(rule), subject_of(case, story), rows.now, story.at(case.until))

    assert [
        seconds(rows.now, incident.opened_at, incident.closed_at) for incident in replayed.incidents
    ] == case.expected


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"interval": None},
        {"interval": 2**63 - 1, "timeout": 600_000},
        {"interval": 60_000, "timeout": 300_000, "tolerable_failed_checkpoints": 1},
        {"interval": 600_000, "timeout": 1000},
        {"interval": 5000, "timeout": 6000, "tolerable_failed_checkpoints": 100_000},
        {"interval": 3_600_000, "timeout": 600_000, "tolerable_failed_checkpoints": 2**31 - 1},
        {"interval": 1000, "timeout": 600_000, "tolerable_failed_checkpoints": -1},
    ],
)
def test_the_derived_limit_is_the_same_in_sql(config: dict[str, int | None], story: Story) -> None:
    Run.objects.filter(pk=story.run.pk).update(checkpoint_config=config)
    ((in_sql,),) = select(f"SELECT {LIMIT} FROM monitoring_run r", {"set": None, "derived": True})
    ((run,),) = runs_of([story.run.job_id], story.at(0)).values()
    assert in_sql == derived_limit_s(run)


def subject_of(case: Case, story: Story) -> Watched:
    match kinds()[case.kind].subject:
        case Subject.JOB:
            return Watched(story.run.job_id, story.run.job.name)
        case Subject.CLUSTER:
            return Watched(story.run.job.cluster_id, story.run.job.cluster.name)
        case Subject.WAYMARK:
            return Watched(WAYMARK, "Waymark")


def seconds(begin: datetime, opened: datetime, closed: datetime | None) -> tuple[float, float | None]:
    return (opened - begin).total_seconds(), (closed - begin).total_seconds() if closed else None
