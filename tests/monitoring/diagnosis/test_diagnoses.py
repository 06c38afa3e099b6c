"""The diagnosis of stored rows, as a page, an incident and a message show it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monitoring.alerts.incidents import Opening, open_incidents, resolve_incident
from monitoring.diagnosis.diagnoses import of_checkpoint, of_incident, of_job
from monitoring.diagnosis.signs.base import milliseconds
from monitoring.diagnosis.signs.skew import SkewReason
from monitoring.models import (
    Channel,
    Checkpoint,
    Delivery,
    Job,
    JobConfiguration,
    OperatorCheckpoint,
    Run,
    RunException,
    Severity,
)
from monitoring.notify.delivery import deliver_due
from monitoring.notify.message import message_of
from monitoring.notify.wording.texts import text_of
from tests.monitoring.diagnosis.builders import CONFIG, DECLINED

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(rows):
    """Return a run with forty checkpoints of 600 ms, one every ten seconds, the newest of 90 seconds ago."""
    job = rows.job(rows.cluster(engine="flink", version="2.3.0"), savepoint_interval_s=3600)
    run = rows.run(job, started_at=rows.ago(7200), checkpoint_config=CONFIG)
    for number in range(1, 41):
        at = rows.ago(90 + 10 * (40 - number))
        rows.checkpoint(run, number, triggered_at=at, latest_ack_at=at + timedelta(milliseconds=600), **USUAL)
    return run


USUAL = {
    "end_to_end_duration": 600,
    "start_delay_max": 40,
    "alignment_max": 10,
    "sync_max": 30,
    "async_max": 400,
    "checkpointed_size": 2_000_000,
    "state_size": 500_000_000,
    "num_subtasks": 8,
    "num_acknowledged_subtasks": 8,
}


def skewed(rows, run) -> Checkpoint:
    slow = {**USUAL, "end_to_end_duration": 9000, "async_max": 8500}
    at = rows.ago(60)
    found = rows.checkpoint(run, 41, triggered_at=at, latest_ack_at=at + timedelta(seconds=9), **slow)
    OperatorCheckpoint.objects.create(
        checkpoint=found,
        vertex_id="0" * 32,
        name="enrich",
        num_subtasks=4,
        num_acknowledged_subtasks=4,
        subtask_async=[400, 8500, 380, 410],
    )
    return found


def declined(rows, run, number: int = 41) -> Checkpoint:
    found = rows.failed(run, number, rows.ago(60), DECLINED)
    RunException.objects.create(
        run=run,
        at=rows.ago(61),
        name="java.io.IOException",
        message="Could not perform checkpoint 41",
        root_cause="ConnectionRefusedError: [Errno 111] Connection refused",
        task="enrich (2/4)",
        digest="1" * 32,
    )
    return found


def names(found) -> list[str]:
    return [each.name for each in found]


def fresh(job: Job) -> Job:
    return Job.objects.select_related("cluster", "current_run", "configuration").get(pk=job.pk)


def test_a_slow_checkpoint_is_compared_with_those_before_it(rows, run) -> None:
    found = skewed(rows, run)
    causes = of_checkpoint(found, found.operators.all(), rows.now)
    assert names(causes) == ["skew"]
    assert causes[0].sentence == SkewReason.SLOWER_THAN_SIBLINGS(
        subtask=1, operator="enrich", number=found.checkpoint_id, measure=SkewReason.ASYNC_PART(), took=8500, others=400
    )
    assert [(each.value, each.usual) for each in causes[0].evidence] == [
        (milliseconds(8500), milliseconds(400)),
        (milliseconds(9000), milliseconds(600)),
    ]


def test_a_usual_one_needs_no_explanation_and_neither_does_its_job(rows, run) -> None:
    newest = run.checkpoints.first()
    assert of_checkpoint(newest, [], rows.now) == []
    healthy = of_job(fresh(run.job), rows.ago(60))
    assert (healthy.causes, healthy.advices, healthy.checkpoint) == ([], [], None)


def test_a_job_shows_its_diagnosis_until_a_checkpoint_completes(rows, run) -> None:
    failed = declined(rows, run)
    now = of_job(fresh(run.job), rows.ago(30))
    assert (names(now.causes), now.checkpoint) == (["external_timeout"], failed)
    at = rows.ago(40)
    pending = rows.checkpoint(run, 42, status="IN_PROGRESS", triggered_at=at, external_path="")
    assert of_job(fresh(run.job), rows.ago(30)).checkpoint == failed
    Checkpoint.objects.filter(pk=pending.pk).update(
        status="COMPLETED", latest_ack_at=at + timedelta(milliseconds=600), **USUAL
    )
    assert of_job(fresh(run.job), rows.ago(30)).causes == []


def test_a_job_on_an_unreachable_cluster_has_only_that_cause(rows, run) -> None:
    declined(rows, run)
    run.job.cluster.unreachable_since = rows.ago(50)
    run.job.cluster.save()
    assert names(of_job(fresh(run.job), rows.now).causes) == ["not_seen"]


def test_a_cluster_that_is_not_polled_is_not_reported_as_triggering_no_checkpoint(rows, run) -> None:
    run.job.cluster.enabled = False
    run.job.cluster.last_answer_at = rows.ago(3000)
    run.job.cluster.save()
    assert names(of_job(fresh(run.job), rows.now + timedelta(hours=1)).causes) == ["not_seen"]


@pytest.mark.parametrize(
    ("state", "expected"), [("FAILED", ["external_timeout"]), ("RESTARTING", ["external_timeout"]), ("CANCELED", [])]
)
def test_an_exception_is_reported_while_the_job_has_a_problem(rows, run, state, expected) -> None:
    declined(rows, run)
    run.state = state
    run.save()
    assert names(of_job(fresh(run.job), rows.now).causes) == expected


def test_settings_are_those_of_the_engine_and_of_the_stored_job(rows, run) -> None:
    run.job.savepoint_interval_s = None
    run.job.save()
    parts = {"execution": {"restart-strategy.type": "none", "state.checkpoints.num-retained": "1"}}
    JobConfiguration.objects.create(job=run.job, parts=parts, since=rows.now)
    diagnosis = of_job(fresh(run.job), rows.ago(60))
    assert names(diagnosis.advices) == ["no_restart", "one_retained", "no_savepoint_schedule"]
    assert diagnosis.by_setting["num_retained"].name == "one_retained"


def test_failures_and_restarts_of_the_week_are_counted(rows, run) -> None:
    rows.failed(run, 50, rows.ago(600))
    rows.failed(run, 51, rows.ago(8 * 86_400))
    run.state_changes.create(at=rows.ago(500), target="RESTARTING")
    (found,) = of_job(fresh(run.job), rows.ago(60)).advices
    assert (found.name, [each.value for each in found.evidence]) == ("no_tolerance", ["1", "1"])


def test_a_long_history_needs_no_more_queries(rows, run, django_assert_num_queries) -> None:
    """Three of the nine queries find that there are no roll-ups."""
    declined(rows, run)
    job = fresh(run.job)
    with django_assert_num_queries(9):
        of_job(job, rows.now)
    for number in range(100, 160):
        rows.failed(run, number, rows.ago(55))
    with django_assert_num_queries(9):
        of_job(job, rows.now)


def incident_of(rows, run, kind: str, evidence: dict[str, object]):
    opening = Opening(kind, Severity.CRITICAL, "It fails.", evidence, job=run.job)
    return open_incidents([opening], rows.now)[0]


def test_an_incident_is_explained_by_the_row_it_was_decided_on_also_when_it_is_over(rows, run) -> None:
    failed = declined(rows, run)
    incident = incident_of(rows, run, "failed_in_window", {"count": 1, "last_row": failed.pk})
    assert names(of_incident(incident, rows.now)) == ["external_timeout"]
    resolve_incident(incident, "it completes.", {}, rows.now)
    assert names(of_incident(incident, rows.now)) == ["external_timeout"]


@pytest.mark.parametrize("row", [None, "x", 10**15, True])
def test_evidence_that_names_no_row_explains_nothing(rows, run, row) -> None:
    assert of_incident(incident_of(rows, run, "failed_in_window", {"last_row": row}), rows.now) == []


def test_a_row_of_another_job_is_ignored(rows, run) -> None:
    other = declined(rows, rows.run(rows.job(), checkpoint_config=CONFIG))
    assert of_incident(incident_of(rows, run, "failed_in_window", {"last_row": other.pk}), rows.now) == []


@pytest.mark.parametrize("kind", ["job_failed", "restart_loop", "not_restarted"])
def test_a_failed_job_is_explained_by_the_last_exception(rows, run, kind: str) -> None:
    declined(rows, run)
    assert names(of_incident(incident_of(rows, run, kind, {}), rows.now)) == ["external_timeout"]


def test_a_lost_job_is_not_explained_by_earlier_exceptions(rows, run) -> None:
    declined(rows, run)
    Run.objects.filter(pk=run.pk).update(state="LOST", ended_at=rows.now)
    Job.objects.filter(pk=run.job_id).update(current_run=run)
    assert of_incident(incident_of(rows, run, "job_failed", {}), rows.now) == []


def test_an_incident_of_a_cluster_has_no_cause_of_a_job(rows, run) -> None:
    opening = Opening("cluster_unreachable", Severity.CRITICAL, "silent", cluster=run.job.cluster)
    assert of_incident(open_incidents([opening], rows.now)[0], rows.now) == []


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", "Likely cause: An external system did not respond in time or rejected a request, in enrich"),
        ("zh-hans", "可能原因：作业访问的外部系统超时或拒绝连接（任务 enrich (2/4)）"),
    ],
)
def test_a_message_has_the_likely_cause_in_the_language_of_the_channel(
    rows, run, mail_sink, language, expected
) -> None:
    channel = Channel.objects.create(name="ops", kind="mail", settings={"to": ["ops@example.org"]}, language=language)
    incident_of(rows, run, "failed_in_window", {"count": 1, "last_row": declined(rows, run).pk})
    deliver_due(rows.now + timedelta(seconds=30))
    text = text_of(channel, message_of(Delivery.objects.get()))
    assert expected in text.body
    assert expected in text.html
    (mail,) = mail_sink.mails
    assert expected in next(
        part.get_payload(decode=True).decode() for part in mail.walk() if part.get_content_type() == "text/plain"
    )
