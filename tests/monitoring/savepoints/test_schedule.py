from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from monitoring.models import AuditEntry, Cluster, Job, RunState, Savepoint, SavepointOrigin, SavepointState
from monitoring.reasons.savepoints import SavepointReason as Why
from monitoring.reasons.work import WorkReason
from monitoring.savepoints.request import SavepointDeferred, request_savepoint
from monitoring.savepoints.schedule import request_due, set_schedule
from monitoring.savepoints.timetable import Cron, Every, Quiet, Quieted


@pytest.fixture
def job(rows, now):
    job = rows.job()
    rows.run(job)
    set_schedule(job, Every(600), "ada", now)
    return job


def polled_and_due(at):
    """Request the due savepoints, as in a tick right after all clusters have answered a poll."""
    Cluster.objects.update(last_answer_at=at)
    return request_due(at)


def due_time(job):
    return Job.objects.get(pk=job.pk).next_savepoint_at


def test_a_savepoint_is_requested_at_its_due_time(job, now):
    assert not polled_and_due(due_time(job) - timedelta(microseconds=1))
    due = due_time(job)
    assert polled_and_due(due)[WorkReason.SAVEPOINTS_REQUESTED] == 1

    savepoint = Savepoint.objects.get()
    assert (savepoint.origin, savepoint.state, savepoint.requested_at) == ("scheduled", "requested", due)
    assert timedelta(seconds=600) <= due_time(job) - due <= timedelta(seconds=630)


def test_a_job_whose_interval_was_set_directly_starts_one_interval_later(rows, now):
    job = rows.job(savepoint_interval_s=100)
    polled_and_due(now)
    assert timedelta(seconds=100) <= due_time(job) - now <= timedelta(seconds=105)


def test_an_impossible_savepoint_is_deferred_with_its_reason_and_retried_soon(rows, job, now):
    job.current_run.state = RunState.RESTARTING
    job.current_run.save()
    due = due_time(job)

    assert polled_and_due(due)[WorkReason.SAVEPOINTS_DEFERRED] == 1
    assert polled_and_due(due_time(job))[WorkReason.SAVEPOINTS_DEFERRED] == 1

    deferred = Savepoint.objects.get()
    assert (deferred.state, deferred.failure_value) == ("deferred", Why.NOT_RUNNING(state="RESTARTING"))
    assert deferred.failure == "the job is RESTARTING, not RUNNING"
    assert due_time(job) == due + timedelta(seconds=60)


def test_a_job_that_was_not_polled_recently_gets_no_savepoint(job, now):
    """After a night without Waymark, a job that is just being recovered may still be stored as RUNNING."""
    due = due_time(job)
    assert request_due(due)[WorkReason.SAVEPOINTS_DEFERRED] == 1
    assert Savepoint.objects.get().failure_value == Why.UNSEEN(since=now)

    assert request_savepoint(job, SavepointOrigin.MANUAL, "ada", due).state == "requested", "a person may ask for one"
    Savepoint.objects.filter(state="requested").delete()

    assert polled_and_due(due_time(job))[WorkReason.SAVEPOINTS_REQUESTED] == 1
    assert Savepoint.objects.get().state == "requested"


def test_a_deferred_savepoint_becomes_the_requested_one(job, now):
    job.current_run.state = RunState.RESTARTING
    job.current_run.save()
    polled_and_due(due_time(job))
    job.current_run.state = RunState.RUNNING
    job.current_run.save()

    polled_and_due(due_time(job))

    assert Savepoint.objects.get().state == SavepointState.REQUESTED


@pytest.mark.parametrize("state", [RunState.CANCELED, RunState.FINISHED])
def test_a_job_that_ended_on_request_gets_no_savepoint(job, state):
    job.current_run.state = state
    job.current_run.save()
    assert not polled_and_due(due_time(job))
    assert not Savepoint.objects.exists()


def test_a_paused_job_is_not_saved_by_the_schedule_but_by_hand(job, now):
    job.automation_paused = True
    job.save()
    assert polled_and_due(due_time(job))[WorkReason.SAVEPOINTS_DEFERRED] == 1
    assert request_savepoint(job, SavepointOrigin.MANUAL, "ada", now)


def test_a_second_request_is_refused_with_the_first(job, now):
    request_savepoint(job, SavepointOrigin.MANUAL, "ada", now)
    with pytest.raises(SavepointDeferred, match="already under way"):
        request_savepoint(job, SavepointOrigin.MANUAL, "bob", now)
    assert Savepoint.objects.count() == 1


def test_a_savepoint_that_others_started_counts_as_under_way(rows, job, now):
    rows.checkpoint(job.current_run, status="IN_PROGRESS", is_savepoint=True, external_path="")
    with pytest.raises(SavepointDeferred, match="already under way"):
        request_savepoint(job, SavepointOrigin.MANUAL, "ada", now)


def test_a_request_is_audited_with_who_and_why(job, now):
    request_savepoint(job, SavepointOrigin.MANUAL, "ada", now)
    entry = AuditEntry.objects.filter(action="savepoint.request").get()
    assert (entry.actor, entry.reason) == ("ada", "manual")


def test_a_cron_schedule_is_kept_in_its_time_zone(job, now):
    set_schedule(job, Cron("30 4 * * *", "Europe/Berlin"), "ada", now)
    job.refresh_from_db()
    assert (job.savepoint_interval_s, job.scheduled) == (None, True)
    due = due_time(job)
    assert timedelta() <= due - datetime(2026, 11, 22, 3, 30, tzinfo=UTC) < timedelta(seconds=60)
    assert polled_and_due(due)[WorkReason.SAVEPOINTS_REQUESTED] == 1
    assert due_time(job) == due + timedelta(days=1)


def test_times_missed_during_an_outage_of_waymark_are_one_savepoint(job, now):
    set_schedule(job, Cron("0 * * * *"), "ada", now)
    back = now + timedelta(days=2, minutes=10)
    assert polled_and_due(back)[WorkReason.SAVEPOINTS_REQUESTED] == 1
    assert back < due_time(job) <= back + timedelta(hours=1)


def test_an_invalid_schedule_does_not_stop_other_jobs(job, rows, now):
    Job.objects.filter(pk=job.pk).update(savepoint_interval_s=None, savepoint_cron="0 0 30 2 *", next_savepoint_at=now)
    other = rows.job(savepoint_interval_s=600, next_savepoint_at=now)
    rows.run(other)
    polled_and_due(now)
    assert Savepoint.objects.filter(job=other).exists()


def test_the_limit_of_a_cluster_delays_further_savepoints(rows, now):
    cluster = rows.cluster(savepoints_at_once=3)
    for late in range(8):
        rows.run(rows.job(cluster, savepoint_interval_s=600, next_savepoint_at=now - timedelta(seconds=late)))
    rows.run(rows.job(savepoint_interval_s=600, next_savepoint_at=now))

    assert polled_and_due(now)[WorkReason.SAVEPOINTS_REQUESTED] == 4
    waiting = Savepoint.objects.filter(state=SavepointState.DEFERRED)
    assert all(each.failure_value == Why.WAITS(cluster=cluster.name, count=3) for each in waiting)
    first = Savepoint.objects.filter(state=SavepointState.REQUESTED, job__cluster=cluster)
    assert {each.job.name for each in first} == {f"job-{number}" for number in (7, 8, 9)}
    assert not polled_and_due(now)

    first.update(state=SavepointState.COMPLETED)
    assert polled_and_due(now)[WorkReason.SAVEPOINTS_REQUESTED] == 3
    Savepoint.objects.filter(state=SavepointState.REQUESTED).update(state=SavepointState.FAILED)
    assert polled_and_due(now)[WorkReason.SAVEPOINTS_REQUESTED] == 2
    assert not Savepoint.objects.filter(state=SavepointState.DEFERRED).exists()
    assert Savepoint.objects.count() == 9


def test_waiting_needs_as_many_queries_for_fifty_jobs_as_for_five(rows, now, django_assert_max_num_queries):
    cluster = rows.cluster(savepoints_at_once=1)
    for _ in range(50):
        rows.run(rows.job(cluster, savepoint_interval_s=600, next_savepoint_at=now))
    polled_and_due(now)
    with django_assert_max_num_queries(10):
        assert not polled_and_due(now)


def test_no_interval_ends_the_schedule(job, now):
    set_schedule(job, None, "ada", now)
    assert not polled_and_due(now + timedelta(days=1))


@pytest.mark.django_db(transaction=True)
def test_four_concurrent_schedulers_request_one_savepoint_per_job(rows, now):
    cluster = rows.cluster(savepoints_at_once=4)
    for _ in range(6):
        rows.run(rows.job(savepoint_interval_s=600, next_savepoint_at=now))
        rows.run(rows.job(cluster, savepoint_interval_s=600, next_savepoint_at=now))

    def work(_worker):
        try:
            return polled_and_due(now)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        total = sum((each[WorkReason.SAVEPOINTS_REQUESTED] for each in pool.map(work, range(4))), 0)

    asked = Savepoint.objects.filter(state=SavepointState.REQUESTED)
    assert total == asked.count() == 10
    assert asked.filter(job__cluster=cluster).count() == 4


def test_a_savepoint_that_is_late_waits_for_the_end_of_quiet_hours(job, now):
    start = now.astimezone(UTC).replace(hour=22, minute=0, second=0, microsecond=0) + timedelta(days=1)
    set_schedule(job, Quieted(Every(3600), Quiet.parse("22:00-06:00", "UTC")), "ada", start - timedelta(hours=3))
    Job.objects.update(next_savepoint_at=start - timedelta(minutes=1))  # Waymark was down until 22:05
    assert not polled_and_due(start + timedelta(minutes=5))
    assert not Savepoint.objects.exists()
    over = start + timedelta(hours=8)
    assert over <= due_time(job) <= over + timedelta(minutes=1)
    assert polled_and_due(due_time(job))[WorkReason.SAVEPOINTS_REQUESTED] == 1
