"""Another run of an ended job starts where the last one ended, on request or on a schedule."""

from __future__ import annotations

from datetime import timedelta

import pytest

from monitoring.models import AutomationPause, Cluster, Job, RestartAttempt, Run, RunState, Savepoint
from monitoring.reasons.automation import AutomationReason
from monitoring.reasons.columns import columns
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.recovery import RecoveryReason
from monitoring.recovery.cycle import advance
from monitoring.recovery.planned import awaited
from monitoring.recovery.run_again import AttemptOpen, RestartRefused, run_again
from monitoring.recovery.run_schedule import set_run_schedule
from monitoring.savepoints.timetable import Cron


@pytest.fixture
def ended(job: Job, job_manager) -> Job:
    """Return a job whose only run ended by itself, with a final savepoint."""
    run = job.current_run
    job_manager.jobs[run.engine_job_id].state = "FINISHED"
    run.state = RunState.FINISHED
    run.outcome = {"saved": True, "savepoint": "file:/sp/end", "state": "file:/sp/end", "rows": 100, "batches": 2}
    run.save()
    Job.objects.filter(pk=job.pk).update(auto_restart=False)
    job.refresh_from_db()
    return job


def started(job_manager) -> list[str | None]:
    return [body.get("savepointPath") for body in job_manager.ran]


def test_the_run_continues_from_the_final_savepoint(ended, rows, job_manager, go_on, now):
    row = Savepoint.objects.create(
        job=ended,
        run=ended.current_run,
        origin="final",
        state="completed",
        path="file:/sp/end",
        requested_at=rows.ago(9),
    )

    attempt = run_again(ended, "ada", now)

    assert (attempt.trigger, attempt.savepoint, attempt.restore_is_savepoint) == ("again", row, True)
    assert attempt.reason.startswith("ada asked to run flights again, from savepoint")
    assert go_on(ended, now).state == "succeeded"
    assert started(job_manager) == ["file:/sp/end"]


def test_the_engine_chooses_the_state_even_if_the_history_has_a_newer_one(ended, rows, job_manager, go_on, now):
    Savepoint.objects.create(
        job=ended, run=ended.current_run, origin="manual", state="completed", path="file:/sp/other", requested_at=now
    )
    run_again(ended, "ada", now)
    go_on(ended, now)
    assert started(job_manager) == ["file:/sp/end"]


def test_a_run_without_a_new_batch_is_followed_by_one_from_the_same_savepoint(ended, job_manager, go_on, now):
    run = ended.current_run
    run.outcome = {"saved": True, "savepoint": "", "state": "file:/sp/before", "rows": 0, "batches": 0}
    run.save()
    run_again(ended, "ada", now)
    go_on(ended, now)
    assert started(job_manager) == ["file:/sp/before"]


def test_a_job_that_never_had_a_batch_is_run_without_state(ended, job_manager, go_on, now):
    run = ended.current_run
    run.outcome = {"saved": True, "savepoint": "", "state": "", "rows": 0, "batches": 0}
    run.save()

    attempt = run_again(ended, "ada", now)

    assert attempt.reason.endswith("from an empty state, because none of its runs has completed a batch.")
    assert go_on(ended, now).state == "succeeded"
    assert started(job_manager) == [None]


def test_checkpoints_that_stayed_instead_of_a_final_savepoint_are_used(ended, rows, job_manager, go_on, now):
    run = ended.current_run
    run.outcome = {"saved": False, "savepoint": "", "state": "", "rows": None, "batches": None}
    run.save()
    run_again(ended, "ada", now)
    go_on(ended, now)
    assert started(job_manager) == ["file:/chk/7"]


def test_a_finished_run_of_which_no_state_is_known_is_not_followed_by_an_empty_one(ended, job_manager, now):
    run = ended.current_run
    run.outcome = {}
    run.save()
    with pytest.raises(RestartRefused) as refused:
        run_again(ended, "ada", now)
    assert refused.value.reason.args["allowed"] == RecoveryReason.NO_STATE_TO_CONTINUE()
    assert not RestartAttempt.objects.exists()


def still_runs():
    return RecoveryReason.BAD_STATE(value="'RUNNING'", allowed=RecoveryReason.STILL_RUNS())


def test_a_new_run_is_refused_while_the_job_runs(live, now):
    with pytest.raises(RestartRefused) as refused:
        run_again(live, "ada", now)
    assert refused.value.reason == still_runs()


def test_a_new_run_is_refused_while_a_run_is_being_started(ended, now):
    run_again(ended, "ada", now)
    with pytest.raises(AttemptOpen):
        run_again(ended, "bob", now)


def test_a_job_that_still_runs_is_not_started_again(ended, job_manager, go_on, now):
    run_again(ended, "ada", now)
    job_manager.add("f" * 32, "flights", "RUNNING")

    attempt = go_on(ended, now)

    assert (attempt.state, started(job_manager)) == ("canceled", [])
    assert job_manager.jobs["f" * 32].state == "RUNNING"


def test_a_run_that_ended_before_it_was_seen_to_run_has_succeeded(ended, job_manager, go_on, now):
    job_manager.starts_as = "FINISHED"
    run_again(ended, "ada", now)
    assert go_on(ended, now).state == "succeeded"


# --- scheduled runs


@pytest.fixture
def hourly(ended: Job, now) -> Job:
    set_run_schedule(ended, Cron("0 * * * *"), "ada", now)
    assert ended.next_run_at == now + timedelta(hours=1)
    return ended


def test_a_run_starts_at_its_due_time(hourly, job_manager, go_on, now):
    assert awaited(now + timedelta(minutes=59)).soonest == now + timedelta(hours=1)
    advance(now + timedelta(minutes=59))
    assert not RestartAttempt.objects.exists()

    attempt = go_on(hourly, now + timedelta(hours=1))

    assert (attempt.trigger, attempt.state) == ("scheduled", "succeeded")
    assert attempt.reason.startswith(
        "The schedule requested the run of flights that was due at 2026-11-21 13:00 UTC, from "
    )
    assert started(job_manager) == ["file:/sp/end"]
    assert Job.objects.get().next_run_at == now + timedelta(hours=2)


def test_times_that_were_missed_are_one_run(hourly, job_manager, go_on, now):
    go_on(hourly, now + timedelta(hours=5, minutes=1))
    assert len(job_manager.ran) == 1
    assert Job.objects.get().next_run_at == now + timedelta(hours=6)


def test_a_scheduled_time_during_a_run_is_skipped_with_a_reason(hourly, job_manager, now):
    run = hourly.current_run
    run.state, run.ended_at = RunState.RUNNING, None
    run.save()
    job_manager.jobs[run.engine_job_id].state = "RUNNING"

    (missed,) = advance(now + timedelta(hours=1)).done
    assert missed.code == RecoveryReason.RUN_OF_JOB
    assert missed.args["problem"] == RecoveryReason.RUN_MISSED(due=now + timedelta(hours=1), why=still_runs())

    job = Job.objects.get()
    assert job.run_problem_value == missed.args["problem"]
    assert "the job is still running" in job.run_problem
    assert job.next_run_at == now + timedelta(hours=2)
    assert not RestartAttempt.objects.exists()


def test_a_run_waits_for_an_unreachable_cluster(hourly, job_manager, go_on, now):
    cluster = hourly.cluster
    type(cluster).objects.filter(pk=cluster.pk).update(unreachable_since=now)
    at = now + timedelta(hours=1)
    advance(at)
    job = Job.objects.get()
    assert (job.next_run_at, "waits" in job.run_problem) == (at, True)
    type(cluster).objects.filter(pk=cluster.pk).update(unreachable_since=None)

    go_on(hourly, at + timedelta(minutes=10))

    assert len(job_manager.ran) == 1
    job = Job.objects.get()
    assert (job.next_run_at, job.run_problem) == (now + timedelta(hours=2), "")


def test_a_run_does_not_wait_for_a_cluster_that_has_ended_with_its_job(hourly, job_manager, now):
    """Here the state of the ended job is not known, which no waiting can change."""
    hourly.launch = {"kind": "command", "command": ["/bin/start", "{savepoint}"]}
    hourly.save()
    Run.objects.update(outcome={})
    ended = {"unreachable_since": now, **columns("last_error", EngineReason.CLUSTER_ENDED())}
    Cluster.objects.filter(pk=hourly.cluster_id).update(**ended)
    advance(now + timedelta(hours=1))
    job = Job.objects.get()
    why = RecoveryReason.BAD_STATE(value="'FINISHED'", allowed=RecoveryReason.NO_STATE_TO_CONTINUE())
    assert job.run_problem_value == RecoveryReason.RUN_MISSED(due=now + timedelta(hours=1), why=why)
    assert job.next_run_at == now + timedelta(hours=2)


def test_a_paused_automation_starts_no_run(hourly, job_manager, now):
    AutomationPause.objects.create(reason="Migration.", author="ada", started_at=now)
    advance(now + timedelta(hours=1))
    assert not RestartAttempt.objects.exists()
    job = Job.objects.get()
    paused = AutomationReason.ALL_PAUSED(who="ada", reason="Migration")
    why = RecoveryReason.BAD_AUTOMATION(value="'paused'", allowed=paused)
    assert job.run_problem_value == RecoveryReason.RUN_MISSED(due=now + timedelta(hours=1), why=why)
    assert "all automation is paused by ada" in job.run_problem


def test_a_run_that_was_started_clears_the_problem_of_the_one_before(hourly, job_manager, go_on, now):
    Job.objects.filter(pk=hourly.pk).update(run_problem="The run that was due yesterday was not started.")
    go_on(hourly, now + timedelta(hours=1))
    assert Job.objects.get().run_problem == ""
