"""Restores that no person requested, and queries that write rows a second time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from checkpointing.spark.starting_state import RowsWouldBeWrittenAgain
from monitoring.engine.answers import JobDetail
from monitoring.engine.fields import Fields
from monitoring.models import Incident, Job, RestartAttempt, Run, RunState, Savepoint
from monitoring.reasons.recovery import RecoveryReason
from monitoring.recovery.cycle import advance
from monitoring.recovery.manual import restart_from
from monitoring.recovery.rows_written_again import REFUSED, QuerySink, Restores, RowsWrittenAgain, of_run
from monitoring.recovery.run_again import run_again
from monitoring.recovery.run_schedule import set_run_schedule
from monitoring.savepoints.timetable import Cron

SINKS = [
    {"id": "a", "name": "Source: lines", "parallelism": 1},
    {"id": "b", "name": "Sink: kafka", "parallelism": 1, "query": "words", "after_restore": "written-again"},
    {"id": "c", "name": "Sink: json[/out]", "parallelism": 1, "query": "files", "after_restore": "goes-back"},
]
OUTCOME = {"saved": True, "savepoint": "file:/sp/end", "state": "file:/sp/end", "rows": 1, "batches": 1}
AGAIN = RowsWrittenAgain((QuerySink("words", "kafka"),), is_known=True)
NOBODY_ELSE = RowsWrittenAgain(is_known=True)


# --- requests --------------------------------------------------------------------------------------------------------


def requested_by_person(job_manager) -> list[bool]:
    """Return for each start whether a person requested its restore."""
    return [not body.get("automaticRestore", False) for body in job_manager.ran]


def test_an_automatic_restart_is_marked_as_not_requested_by_a_person(job, job_manager, go_on, now):
    go_on(job, now)
    assert requested_by_person(job_manager) == [False]


def test_a_restart_by_hand_is_a_persons(job, job_manager, go_on, now):
    Job.objects.update(auto_restart=False)
    restart_from(job, "file:/chk/7", "ada", now)
    go_on(job, now)
    assert requested_by_person(job_manager) == [True]


def test_flink_gets_no_unknown_field(job, job_manager, go_on, now):
    Job.objects.update(launch=job.launch | {"kind": "flink-jar"})
    job.refresh_from_db()
    go_on(job, now)
    assert "automaticRestore" not in job_manager.ran[0]


@pytest.fixture
def ended(job: Job, job_manager) -> Job:
    run = job.current_run
    job_manager.jobs[run.engine_job_id].state = "FINISHED"
    run.state, run.outcome = RunState.FINISHED, OUTCOME
    run.save()
    Job.objects.filter(pk=job.pk).update(auto_restart=False)
    job.refresh_from_db()
    return job


def test_a_scheduled_run_from_the_end_of_the_last_one_repeats_nothing(ended, job_manager, go_on, now):
    set_run_schedule(ended, Cron("0 * * * *"), "ada", now)
    go_on(ended, now + timedelta(hours=1))
    assert requested_by_person(job_manager) == [True]


def test_a_scheduled_run_from_an_older_state_is_automatic(ended, job_manager, go_on, now):
    """The job has no final savepoint, and its last checkpoint is older than its last batch."""
    Run.objects.update(outcome=OUTCOME | {"saved": False, "savepoint": "", "state": ""})
    set_run_schedule(ended, Cron("0 * * * *"), "ada", now)
    go_on(ended, now + timedelta(hours=1))
    assert requested_by_person(job_manager) == [False]


def test_running_it_again_is_a_persons(ended, job_manager, go_on, now):
    Run.objects.update(outcome=OUTCOME | {"saved": False, "savepoint": "", "state": ""})
    run_again(Job.objects.select_related("current_run", "cluster").get(), "ada", now)
    go_on(ended, now)
    assert requested_by_person(job_manager) == [True]


# --- a job manager that refused --------------------------------------------------------------------------------------


def test_the_job_manager_reports_a_refusal_under_this_name():
    assert RowsWouldBeWrittenAgain.__name__ == REFUSED


def test_a_person_decides_when_the_job_manager_refused(job, job_manager, now):
    refused = {"name": REFUSED, "message": "execution.sinks.after-restore is refuse", "task": "", "at": ""}
    Run.objects.update(exceptions=[refused])
    advance(now)
    assert not RestartAttempt.objects.exists()
    incident = Incident.objects.get()
    assert incident.events.get().evidence["why"]["code"] == RecoveryReason.ROWS_WRITTEN_AGAIN
    assert "execution.sinks.after-restore requires a manual decision" in incident.sentence


# --- which queries ---------------------------------------------------------------------------------------------------


def test_an_older_state_is_followed_by_rows_that_are_written_again(job):
    Run.objects.update(vertices=SINKS)
    job.refresh_from_db()
    assert Restores(job).of("file:/chk/7") == AGAIN


def test_nothing_follows_the_savepoint_that_the_job_is_stopped_with(live):
    live.current_run.vertices = SINKS
    assert Restores(live).of("") == NOBODY_ELSE


def test_nothing_follows_the_state_that_a_run_ended_with(ended):
    Run.objects.update(vertices=SINKS)
    ended.refresh_from_db()
    assert Restores(ended).of("file:///sp/end") == NOBODY_ELSE
    assert Restores(ended).of("file:/chk/7") == AGAIN


def test_nothing_follows_the_savepoint_that_a_run_was_stopped_with(ended, now):
    Run.objects.update(vertices=SINKS, outcome={})
    ended.refresh_from_db()
    values = {"job": ended, "run": ended.current_run, "origin": "manual", "state": "completed", "requested_at": now}
    Savepoint.objects.create(**values, path="file:/sp/stop", stops_job=True)
    Savepoint.objects.create(**values, path="file:/sp/earlier")
    assert Restores(ended).of("file:/sp/stop") == NOBODY_ELSE
    assert Restores(ended).of("file:/sp/earlier") == AGAIN


def test_a_run_without_operators_is_judged_by_the_previous_one(job, rows):
    Run.objects.update(vertices=SINKS)
    rows.run(job, RunState.FAILED, number=2, vertices=[])
    job.refresh_from_db()
    assert Restores(job).of("file:/chk/7") == AGAIN


def test_an_engine_without_the_field_gives_an_unknown_value(job):
    job.current_run.vertices = [{"id": "a", "name": "Sink: kafka", "parallelism": 1}]
    assert (of_run(job.current_run), of_run(None)) == (RowsWrittenAgain(), RowsWrittenAgain())


# --- answers of the engine -------------------------------------------------------------------------------------------

DETAIL = {
    "jid": "1" * 32,
    "name": "words",
    "state": "RUNNING",
    "start-time": 1,
    "end-time": -1,
    "vertices": [
        {"id": "a" * 32, "name": "Source: lines", "parallelism": 1, "query": "words", "kind": "source"},
        {"id": "b" * 32, "name": "Sink: kafka", "parallelism": 1, "query": "words", "kind": "sink"},
    ],
}


def stored(**more: object) -> list[dict[str, object]]:
    detail = JobDetail.parse(Fields(DETAIL | more, "/jobs/1"))
    return [vertex.as_row() for vertex in detail.vertices]


def test_a_sink_is_stored_with_its_query_and_its_behaviour_after_a_restore():
    queries = [{"name": "words", "sink": "Sink: kafka", "after-restore": "written-again"}]
    source, sink = stored(queries=queries)
    assert "query" not in source
    assert (sink["query"], sink["after_restore"]) == ("words", "written-again")


@pytest.mark.parametrize("more", [{}, {"queries": []}, {"queries": [{"name": "words", "after-restore": None}]}])
def test_an_engine_without_the_field_adds_no_text(more):
    assert [set(row) for row in stored(**more)] == [{"id", "name", "parallelism"}] * 2
