from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from monitoring.alerts import lifecycle
from monitoring.alerts.defaults import DEFAULTS, ensure_default_rules
from monitoring.alerts.evaluation import evaluate_due
from monitoring.alerts.failure_reason import CheckpointFailureReason
from monitoring.alerts.incidents import Opening, open_incidents
from monitoring.alerts.kinds.base import checkpoints
from monitoring.alerts.kinds.counting import FailedInWindowReason
from monitoring.alerts.kinds.job_failed import JobFailedReason
from monitoring.engine import registration
from monitoring.models import (
    AlertRule,
    AuditEntry,
    Channel,
    Cluster,
    Incident,
    IncidentEvent,
    IncidentEventKind,
    IncidentKind,
    IncidentState,
    Notification,
    Outage,
    OutageKind,
    RunState,
    Severity,
)
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason
from monitoring.recovery.not_restarted import report_not_restarted
from tests.monitoring.reported import NOTHING, done, incidents


def kinds(incident):
    return [event.kind for event in incident.events.all()]


@pytest.fixture
def job(rows):
    return rows.job(name="flights-by-route")


@pytest.fixture
def run(rows, job):
    return rows.run(job)


@pytest.fixture
def rule(job, only_own_rules):
    return AlertRule.objects.create(job=job, threshold=3)


@pytest.fixture
def only_own_rules(rows):
    """Create the default rules and disable them."""
    ensure_default_rules()
    AlertRule.objects.update(enabled=False)


@pytest.fixture
def wide_rule(rows):
    """Return the default rule for failed checkpoints, with the other default rules disabled."""
    ensure_default_rules()
    AlertRule.objects.exclude(kind="failed_in_window").update(enabled=False)
    return AlertRule.objects.get(kind="failed_in_window")


def test_a_failed_job_opens_an_incident_by_default(rows, job, now):
    rows.run(job, RunState.FAILED, ended_at=rows.ago(5))

    evaluate_due(now)

    assert [(each.rule.kind, each.severity) for each in Incident.objects.all()] == [("job_failed", "critical")]


def test_a_lost_job_did_not_fail_of_an_exception_that_was_over(rows, job, now):
    """The engine reported the exception for an earlier restart. It gave no reason why the job is missing now."""
    thrown = {"name": "x.NoSlots", "message": "Could not acquire resources.", "at": "2026-01-01T00:00:00Z", "task": ""}
    over = {"exception": "Could not acquire resources.", "exceptions": [thrown]}
    rows.run(job, RunState.LOST, ended_at=rows.ago(5), number=2, **over)

    evaluate_due(now)

    incident = Incident.objects.get()
    assert incident.sentence_value == JobFailedReason.LOST(subject=job.name, run=2, at=rows.ago(5))
    assert incident.sentence == f"{job} was lost: the engine has not known run 2 since {rows.ago(5):%H:%M:%S} UTC."
    assert (incident.events.get().evidence["cause"], incident.events.get().evidence["lost"]) == ("", True)


def test_the_threshold_opens_one_incident_with_its_evidence(rows, run, rule, now):
    for number in (38, 40, 41):
        rows.failed(run, number, rows.ago(500 - number))

    assert evaluate_due(now) == incidents(1, opened=1)

    incident = Incident.objects.get()
    assert incident.sentence == (
        "3 checkpoints of flights-by-route failed within 15 min (threshold 3): the last, 41, expired before completing."
    )
    assert incident.sentence_value == FailedInWindowReason.FOUND(
        checkpoints=checkpoints(3),
        subject="flights-by-route",
        window=900,
        threshold=3,
        checkpoint=41,
        failure=CheckpointFailureReason.EXPIRED(),
    )
    event = incident.events.get()
    assert (event.kind, event.evidence["checkpoint_ids"]) == ("opened", [41, 40, 38])
    assert event.text_value == incident.sentence_value
    rule.refresh_from_db()
    assert (rule.last_checked_at, rule.next_check_at) == (now, now + timedelta(seconds=300))


@pytest.mark.parametrize(
    ("age_s", "counted"),
    [(900, False), (899.999999, True), (0, True), (-0.000001, False)],
)
def test_the_window_is_open_at_its_start_and_closed_at_now(rows, run, rule, now, age_s, counted):
    AlertRule.objects.filter(pk=rule.pk).update(threshold=1)
    rows.failed(run, 1, rows.ago(age_s))

    evaluate_due(now)

    assert Incident.objects.exists() == counted


def test_equal_ids_of_two_runs_are_two_failures(rows, job, rule, now):
    for run in (rows.run(job), rows.run(job), rows.run(job)):
        rows.failed(run, 1, rows.ago(60))

    evaluate_due(now)

    assert Incident.objects.count() == 1


def test_a_rule_is_not_evaluated_before_its_due_time(rows, run, rule, now):
    evaluate_due(now)
    for number in range(5):
        rows.failed(run, number + 1, now)

    assert evaluate_due(now + timedelta(seconds=299)) == NOTHING
    assert evaluate_due(now + timedelta(seconds=300)) == incidents(1, opened=1)


def test_more_failures_change_the_open_incident_and_send_no_notification(rows, run, rule, now):
    Channel.objects.create(name="ops", kind="mail", settings={"to": ["ops@example.org"]})
    for number in (1, 2, 3):
        rows.failed(run, number, now)
    evaluate_due(now)
    rows.failed(run, 4, now + timedelta(seconds=100))

    evaluate_due(now + timedelta(seconds=300))
    evaluate_due(now + timedelta(seconds=600))

    incident = Incident.objects.get()
    assert kinds(incident) == ["opened", "changed"]
    assert incident.sentence_value.args["checkpoints"] == checkpoints(4)
    assert incident.events.last().text_value == incident.sentence_value
    assert Notification.objects.count() == 1


def test_an_incident_resolves_when_the_failures_leave_the_window(rows, run, rule, now):
    Channel.objects.create(name="ops", kind="mail", settings={"to": ["ops@example.org"]})
    for number in (1, 2, 3):
        rows.failed(run, number, now)
    evaluate_due(now)

    evaluate_due(now + timedelta(seconds=900))

    incident = Incident.objects.get()
    assert incident.state == IncidentState.RESOLVED
    assert incident.events.last().text == (
        "Resolved after 15 min: 0 checkpoints of flights-by-route failed within 15 min (threshold 3)."
    )
    assert list(Notification.objects.order_by("id").values_list("reason", flat=True)) == ["opened", "resolved"]


def test_a_problem_that_returns_after_its_end_is_a_second_incident(rows, run, rule, now):
    for number in (1, 2, 3):
        rows.failed(run, number, now)
    evaluate_due(now)
    evaluate_due(now + timedelta(seconds=900))
    for number in (4, 5, 6):
        rows.failed(run, number, now + timedelta(seconds=1000))

    evaluate_due(now + timedelta(seconds=1200))

    assert Incident.objects.count() == 2


def test_rules_are_not_evaluated_while_their_cluster_does_not_answer(rows, run, rule, job, now):
    for number in (1, 2, 3):
        rows.failed(run, number, now)
    evaluate_due(now)
    job.cluster.unreachable_since = now
    job.cluster.save()

    later = now + timedelta(hours=1)
    assert (
        str(evaluate_due(later))
        == "No incident changed; 0 rules evaluated; 1 frozen because its cluster does not answer."
    )

    assert Incident.objects.get().state == IncidentState.OPEN
    rule.refresh_from_db()
    assert (rule.last_checked_at, rule.next_check_at) == (now, later + timedelta(seconds=300))


def test_a_job_without_a_specific_rule_has_the_global_one(rows, run, wide_rule, now):
    for number in (1, 2, 3):
        rows.failed(run, number, rows.ago(10 * number))

    assert evaluate_due(now) == incidents(1, opened=1)

    assert (Incident.objects.get().rule, Incident.objects.get().job) == (wide_rule, run.job)
    assert (wide_rule.scope, wide_rule.check_every_s, wide_rule.severity) == ("everything", 300, "warning")


def test_the_default_rules_are_created_once_and_keep_their_settings(db):
    ensure_default_rules()
    AlertRule.objects.filter(kind="failed_in_window").update(threshold=9, enabled=False)
    ensure_default_rules()
    assert AlertRule.objects.count() == len(DEFAULTS)
    assert AlertRule.objects.get(kind="failed_in_window").threshold == 9


def test_the_rule_of_a_job_overrides_wider_ones_of_its_kind(rows, run, job, wide_rule, now):
    AlertRule.objects.create(job=job, threshold=4)
    for number in (1, 2, 3):
        rows.failed(run, number, rows.ago(10 * number))

    evaluate_due(now)

    assert not Incident.objects.exists()


def test_a_disabled_rule_of_a_job_turns_off_the_kind_for_it(rows, run, job, wide_rule, now):
    AlertRule.objects.create(job=job, enabled=False)
    for number in (1, 2, 3):
        rows.failed(run, number, rows.ago(10 * number))

    evaluate_due(now)

    assert not Incident.objects.exists()


def test_an_incident_ends_when_another_rule_decides_for_the_job(rows, run, job, wide_rule, now):
    for number in (1, 2, 3):
        rows.failed(run, number, rows.ago(10 * number))
    evaluate_due(now)
    AlertRule.objects.create(job=job, threshold=5)

    evaluate_due(now + timedelta(seconds=300))

    incident = Incident.objects.get()
    assert incident.state == IncidentState.RESOLVED
    assert incident.events.last().text_value == AlertReason.RULE_ELSEWHERE(lasted=300)


def test_failures_during_an_outage_of_waymark_count_at_their_time(rows, run, rule, now, later):
    evaluate_due(now)
    for number in (1, 2, 3):
        rows.failed(run, number, later(1000 + number))

    assert evaluate_due(later(7200)) == incidents(1, opened=1, resolved=1)

    incident = Incident.objects.get()
    assert (incident.opened_at, incident.resolved_at) == (later(1003), later(1901))


def test_failures_during_an_outage_of_the_cluster_count_when_it_answers_again(rows, run, rule, job, now, later):
    evaluate_due(now)
    job.cluster.unreachable_since = later(10)
    job.cluster.save()
    evaluate_due(later(3000))
    for number in (1, 2, 3):
        rows.failed(run, number, later(100 + number))
    job.cluster.unreachable_since = None
    job.cluster.save()

    evaluate_due(later(3600))

    assert Incident.objects.get().opened_at == later(103)


def test_a_late_row_counts_at_its_time(rows, run, rule, later, now):
    """With the late row, only a window that ended before the last evaluation has enough failures."""
    AlertRule.objects.update(window_s=60, check_every_s=5)
    evaluate_due(now)
    rows.failed(run, 1, later(1))
    rows.failed(run, 2, later(59))
    evaluate_due(later(100))
    rows.failed(run, 3, later(60))  # polled only now

    evaluate_due(later(105))

    assert Incident.objects.get().opened_at == later(60)


def test_a_short_series_of_failures_is_one_resolved_incident(rows, run, rule, later, now):
    Channel.objects.create(name="ops", kind="mail", settings={"to": ["ops@example.org"]})
    evaluate_due(now)
    for number in (1, 2, 3):
        rows.failed(run, number, later(10 + number))

    evaluate_due(later(3600))

    assert kinds(Incident.objects.get()) == ["opened", "resolved"]


@pytest.mark.parametrize(
    ("how", "end"), [("switched off", AlertReason.RULE_OFF), ("removed", AlertReason.RULE_REMOVED)]
)
def test_an_incident_ends_with_its_rule(rows, run, rule, now, how, end):
    for number in (1, 2, 3):
        rows.failed(run, number, now)
    evaluate_due(now)
    if how == "removed":
        rule.delete()
    else:
        AlertRule.objects.update(enabled=False)

    evaluate_due(now + timedelta(seconds=5))

    incident = Incident.objects.order_by("id").first()
    assert incident.state == IncidentState.RESOLVED
    assert incident.events.last().text_value == end(lasted=5)
    assert incident.events.last().text == f"Resolved after 5 s: its rule was {how}."


def test_incidents_of_a_cluster_and_its_jobs_end_when_it_is_removed(rows, job, run, rule, now):
    for number in (1, 2, 3):
        rows.failed(run, number, now)
    evaluate_due(now)
    report_not_restarted(job, f"{job} is dead and is not restarted.", {"why": "start_unknown"}, now)
    own = Opening(IncidentKind.CLUSTER_UNREACHABLE, Severity.CRITICAL, "It does not answer.", cluster=job.cluster)
    elsewhere = rows.job()
    report_not_restarted(elsewhere, f"{elsewhere} is dead and is not restarted.", {"why": "start_unknown"}, now)
    open_incidents([own], now)
    registration.remove(job.cluster, actor="ada", reason="moved", now=now)

    closed = WorkReason.INCIDENTS_CLOSED(changes=[WorkReason.INCIDENTS_RESOLVED(count=3)])
    assert evaluate_due(now + timedelta(seconds=5)) == done(closed)

    left = Incident.objects.exclude(state=IncidentState.RESOLVED)
    assert [each.job for each in left] == [elsewhere]
    ends = [incident.events.last() for incident in Incident.objects.filter(state=IncidentState.RESOLVED)]
    assert [end.text_value for end in ends] == [AlertReason.CLUSTER_REMOVED(lasted=5)] * 3
    assert evaluate_due(now + timedelta(hours=1)).is_quiet


def test_only_new_problems_of_a_restored_cluster_open_incidents(rows, job, run, rule, now):
    for number in (1, 2, 3):
        rows.failed(run, number, now)
    evaluate_due(now)
    registration.remove(job.cluster, actor="ada", reason="moved", now=now)
    evaluate_due(now + timedelta(seconds=5))
    registration.watch(job.cluster, watched=True, actor="ada")
    evaluate_due(now + timedelta(seconds=1900))
    for number in (4, 5, 6):
        rows.failed(run, number, now + timedelta(seconds=2000))
    evaluate_due(now + timedelta(seconds=2300))
    assert [each.state for each in Incident.objects.order_by("opened_at")] == ["resolved", "open"]


def test_failures_that_a_person_dealt_with_do_not_open_again(rows, run, rule, now):
    for number in (1, 2, 3):
        rows.failed(run, number, now)
    evaluate_due(now)
    lifecycle.resolve(Incident.objects.get(), "ada", "disk replaced", now + timedelta(seconds=10))

    evaluate_due(now + timedelta(seconds=300))
    assert Incident.objects.count() == 1

    for number in (4, 5, 6):
        rows.failed(run, number, now + timedelta(seconds=301))
    evaluate_due(now + timedelta(seconds=600))
    assert Incident.objects.count() == 2


def test_acknowledging_is_on_the_timeline_and_in_the_audit_log(rows, run, rule, now):
    for number in (1, 2, 3):
        rows.failed(run, number, now)
    evaluate_due(now)
    incident = Incident.objects.get()

    lifecycle.acknowledge(incident, "ada", "looking", now)

    assert (incident.state, incident.acknowledged_by) == ("acknowledged", "ada")
    assert incident.events.last().text_value == AlertReason.ACKNOWLEDGED_NOTE(by="ada", note="looking")
    assert incident.events.last().text == "Acknowledged by ada: looking"
    assert AuditEntry.objects.get().action == "incident.acknowledge"


def test_the_second_person_to_acknowledge_is_refused(rows, run, rule, now):
    for number in (1, 2, 3):
        rows.failed(run, number, now)
    evaluate_due(now)
    stale = Incident.objects.get()
    lifecycle.acknowledge(Incident.objects.get(), "ada", "", now)

    with pytest.raises(lifecycle.IncidentMovedOn, match="acknowledged already"):
        lifecycle.acknowledge(stale, "bob", "", now)
    assert AuditEntry.objects.count() == 1


@pytest.mark.parametrize("act", [lifecycle.snooze, lifecycle.resolve])
def test_an_action_on_an_incident_that_was_resolved_is_refused(rows, run, rule, now, act):
    for number in (1, 2, 3):
        rows.failed(run, number, now)
    evaluate_due(now)
    stale, result = Incident.objects.get(), ("bob", "", now)
    lifecycle.resolve(Incident.objects.get(), "ada", "", now)

    with pytest.raises(lifecycle.IncidentMovedOn):
        act(stale, *((now + timedelta(hours=1), *result) if act is lifecycle.snooze else result))
    assert (Incident.objects.get().state, AuditEntry.objects.count()) == ("resolved", 1)


def test_a_snooze_that_a_person_ended_sends_no_notification(rows, run, rule, now, monkeypatch):
    for number in (1, 2, 3):
        rows.failed(run, number, now)
    evaluate_due(now)
    lifecycle.snooze(Incident.objects.get(), now + timedelta(minutes=1), "ada", "", now)

    def wake(incident, moment, real=lifecycle.wake_incident):
        lifecycle.resolve(Incident.objects.get(), "bob", "", moment)
        return real(incident, moment)

    monkeypatch.setattr(lifecycle, "wake_incident", wake)
    assert lifecycle.wake_due(now + timedelta(minutes=1)) == CycleReport()
    assert kinds(Incident.objects.get())[-1] == "resolved"


def test_an_acknowledged_incident_still_resolves(rows, run, rule, now):
    for number in (1, 2, 3):
        rows.failed(run, number, now)
    evaluate_due(now)
    lifecycle.acknowledge(Incident.objects.get(), "ada", "", now)

    evaluate_due(now + timedelta(hours=1))

    assert kinds(Incident.objects.get()) == ["opened", "acknowledged", "resolved"]


def test_evaluation_takes_as_many_queries_for_forty_jobs_and_rules_as_for_four(rows, now):
    def jobs(count):
        for _ in range(count):
            run = rows.run(rows.job())
            rows.failed(run, 1, now)
            AlertRule.objects.create(job=run.job)

    def queries(at):
        with CaptureQueriesContext(connection) as captured:
            evaluate_due(at)
        return len(captured)

    jobs(4)
    evaluate_due(now)
    few = queries(now + timedelta(seconds=300))
    jobs(36)
    evaluate_due(now + timedelta(seconds=300))

    assert queries(now + timedelta(seconds=600)) == few


def test_a_crash_before_the_commit_leaves_the_rule_due(rows, run, rule, now, monkeypatch):
    for number in (1, 2, 3):
        rows.failed(run, number, now)

    class Killed(BaseException):
        pass

    def die(*_args, **_kwargs):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("monitoring.alerts.incidents.outbox.write", die)
        with pytest.raises(Killed):
            evaluate_due(now)
    assert not IncidentEvent.objects.exists()

    evaluate_due(now)
    assert IncidentEvent.objects.get().kind == IncidentEventKind.OPENED


@pytest.mark.django_db(transaction=True)
def test_two_workers_at_once_open_one_incident(rows, now):
    for _ in range(20):
        run = rows.run(rows.job())
        for number in (1, 2, 3):
            rows.failed(run, number, now)

    def evaluate(_worker):
        try:
            return evaluate_due(now)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(evaluate, range(4)))

    assert Incident.objects.count() == 20
    assert IncidentEvent.objects.count() == 20


def test_an_unreachable_cluster_is_the_only_incident_of_its_jobs(rows, now, later):
    cluster = rows.cluster()
    runs = [rows.run(rows.job(cluster)) for _ in range(30)]
    evaluate_due(now)
    cluster.unreachable_since = later(30)
    cluster.save()
    Outage.objects.create(cluster=cluster, kind=OutageKind.NO_ANSWER, began_at=later(30))
    for run in runs:
        for number in (1, 2, 3):
            rows.failed(run, number, later(40 + number))

    evaluate_due(later(300))

    incident = Incident.objects.get()
    assert (incident.kind, incident.cluster, incident.job) == ("cluster_unreachable", cluster, None)
    assert incident.opened_at == later(90)


def test_an_incident_resolved_by_a_person_opens_again_only_after_the_problem_ended(
    rows, run, job, only_own_rules, now, later
):
    rule = AlertRule.objects.create(job=job, kind="end_to_end_duration", threshold=1000, check_every_s=5)

    def completed(number, seconds, took):
        rows.checkpoint(
            run, number, triggered_at=later(seconds - 1), latest_ack_at=later(seconds), end_to_end_duration=took
        )

    completed(1, 0, 2000)
    evaluate_due(now)
    lifecycle.resolve(Incident.objects.get(), "ada", "known", later(10))
    completed(2, 60, 2000)
    evaluate_due(later(100))
    assert Incident.objects.filter(rule=rule).count() == 1

    completed(3, 160, 500)
    completed(4, 220, 2000)
    evaluate_due(later(300))
    assert list(Incident.objects.order_by("id").values_list("state", "opened_at")) == [
        ("resolved", now),
        ("open", later(220)),
    ]


def test_a_flapping_rule_is_one_incident_marked_as_flapping(rows, run, job, only_own_rules, now, later):
    AlertRule.objects.create(job=job, threshold=1, window_s=60, check_every_s=5, flap_opens=3)
    evaluate_due(now)
    for number in range(1, 9):
        rows.failed(run, number, later(100 * number))

    evaluate_due(later(1000))

    *short, flapping = Incident.objects.order_by("opened_at")
    assert [each.state for each in short] == ["resolved", "resolved"]
    assert flapping.state == IncidentState.OPEN
    assert flapping.sentence_value.code is AlertReason.FLAPPING
    assert flapping.sentence.startswith("flights-by-route is flapping: opened 3 times within 1 h. ")


def test_a_flapping_incident_without_a_problem_shows_since_when(rows, run, job, only_own_rules, now, later):
    AlertRule.objects.create(job=job, threshold=1, window_s=60, check_every_s=5, flap_opens=3)
    evaluate_due(now)
    for number in range(1, 4):
        rows.failed(run, number, later(100 * number))
    evaluate_due(later(310))
    flapping = Incident.objects.get(state=IncidentState.OPEN)
    assert flapping.sentence_value.code is AlertReason.FLAPPING

    evaluate_due(later(500))
    flapping.refresh_from_db()
    assert flapping.state == IncidentState.OPEN
    calm = flapping.sentence_value
    assert calm.code is AlertReason.FLAPPING_CALM
    assert (calm.args["opens"], calm.args["window"]) == (3, 3600)
    assert later(300) < datetime.fromisoformat(calm.args["since"]) <= later(500)

    evaluate_due(later(900))  # a sentence with an instant does not change with each evaluation
    flapping.refresh_from_db()
    assert flapping.sentence_value == calm
    assert [event.kind for event in flapping.events.all()] == ["opened", "changed"]

    rows.failed(run, 4, later(1000))
    evaluate_due(later(1010))
    flapping.refresh_from_db()
    assert flapping.sentence_value.code is AlertReason.FLAPPING


def test_a_flapping_incident_of_a_level_is_true_again_when_the_problem_returns(rows, run, job, only_own_rules, later):
    rule = AlertRule.objects.create(job=job, kind="end_to_end_duration", threshold=1000, check_every_s=5, flap_opens=1)

    def completed(number, seconds, took):
        rows.checkpoint(
            run, number, triggered_at=later(seconds - 1), latest_ack_at=later(seconds), end_to_end_duration=took
        )

    codes = []
    for number, took in enumerate((2000, 500, 2000, 2000), start=1):
        completed(number, 60 * number, took)
        evaluate_due(later(60 * number + 5))
        evaluate_due(later(60 * number + 15))
        codes.append(Incident.objects.get(rule=rule).sentence_value.code)

    assert codes == [
        AlertReason.FLAPPING,
        AlertReason.FLAPPING_CALM,
        AlertReason.FLAPPING,
        AlertReason.FLAPPING,
    ]


def test_missing_checkpoints_are_not_a_problem_while_the_cluster_is_not_polled(
    rows, run, job, only_own_rules, now, later
):
    """While the poller is down and evaluation continues, the jobs' checkpoints are not missing, but unread."""
    AlertRule.objects.create(job=job, kind="no_completed_checkpoint", threshold=600, check_every_s=5)
    rows.checkpoint(run, 1, triggered_at=later(-2), latest_ack_at=later(-1))
    Cluster.objects.update(next_poll_at=later(5))
    evaluate_due(now)

    assert "1 frozen" in str(evaluate_due(later(3600)))
    assert not Incident.objects.exists()

    Outage.objects.create(cluster=job.cluster, kind=OutageKind.NOT_POLLED, began_at=later(5), ended_at=later(3700))
    Cluster.objects.update(next_poll_at=later(9999))
    rows.checkpoint(run, 2, triggered_at=later(3690), latest_ack_at=later(3695))
    evaluate_due(later(3705))
    assert not Incident.objects.exists()
    evaluate_due(later(3695 + 605))
    assert Incident.objects.get().opened_at == later(3695 + 600)
