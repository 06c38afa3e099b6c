from datetime import timedelta
from functools import partial

import pytest

from monitoring import engine_calls
from monitoring.models import Cluster, Job, Savepoint, SavepointOrigin, SavepointState
from monitoring.reasons.savepoints import SavepointReason
from monitoring.savepoints import cycle
from monitoring.savepoints.claims import CLAIM
from monitoring.savepoints.cycle import advance
from monitoring.savepoints.request import MARGIN, TIMEOUT, request_savepoint
from monitoring.savepoints.schedule import set_schedule
from monitoring.savepoints.settle import HISTORY_LAG, SEND_AGAIN_WITHIN
from monitoring.savepoints.timetable import Every
from tests.monitoring.reported import NOTHING, savepoints


@pytest.fixture
def job(rows, job_manager):
    job = rows.job(rows.cluster(rest_url=job_manager.url), name="flights")
    run = rows.run(job)
    job_manager.add(run.engine_job_id, "flights")
    return job


@pytest.fixture
def savepoint(job, now):
    return request_savepoint(job, SavepointOrigin.MANUAL, "ada", now)


class Killed(BaseException):
    """Raised instead of a SIGKILL: no handler runs."""


def reload(savepoint):
    savepoint.refresh_from_db()
    return savepoint


def seconds(now, count):
    return now + timedelta(seconds=count)


def test_a_savepoint_is_sent_followed_and_recorded(rows, savepoint, job_manager, now):
    assert advance(now) == savepoints(sent=1)
    assert advance(seconds(now, 1)) == savepoints(completed=1)

    done = reload(savepoint)
    assert (done.state, done.path) == ("completed", job_manager.savepoints[savepoint.trigger_id].location)
    assert advance(seconds(now, 60)) == NOTHING


def test_the_size_of_a_savepoint_is_that_of_the_history_once_polled(rows, savepoint, job_manager, now):
    advance(now)
    advance(seconds(now, 1))
    path = reload(savepoint).path.replace("file:/", "file:///")
    row = rows.checkpoint(savepoint.run, is_savepoint=True, external_path=path, triggered_at=now, state_size=4321)

    assert advance(seconds(now, 2)) == savepoints(linked=1)
    assert (reload(savepoint).checkpoint, savepoint.size) == (row, 4321)


def test_a_savepoint_is_followed_until_its_deadline(savepoint, job_manager, now):
    job_manager.completes_savepoints = False
    advance(now)
    assert advance(seconds(now, 1)) == NOTHING  # nothing to report
    assert reload(savepoint).state == SavepointState.IN_PROGRESS

    assert advance(now + TIMEOUT + MARGIN) == savepoints(failed=1)
    why = SavepointReason.STILL_UNDER_WAY()
    assert reload(savepoint).failure_value == SavepointReason.TOO_LATE(why=why)
    assert savepoint.failure == "Not completed in time: it is still under way."


def test_the_failure_of_a_savepoint_is_the_engines_sentence(savepoint, job_manager, now):
    advance(now)
    job_manager.savepoints[savepoint.trigger_id].failure = "Disk is full"
    advance(seconds(now, 1))
    assert (reload(savepoint).state, savepoint.failure, savepoint.failure_value) == ("failed", "Disk is full", None)


class TestAScheduledOneThatFails:
    @pytest.fixture
    def weekly(self, job, now):
        set_schedule(job, Every(7 * 86_400), "ada", now)
        Job.objects.filter(pk=job.pk).update(next_savepoint_at=now)
        return job

    def fails(self, job, job_manager, now):
        """Let a savepoint that is due at `now` fail.

        Return in how many minutes the next one is due, and its time.
        """
        Cluster.objects.update(last_answer_at=now)
        assert advance(now) == savepoints(requested=1, sent=1)
        newest = Savepoint.objects.latest("requested_at")
        job_manager.savepoints[newest.trigger_id].failure = "Disk is full"
        assert advance(seconds(now, 1)) == savepoints(failed=1)
        job.refresh_from_db()
        return (job.next_savepoint_at - seconds(now, 1)) / timedelta(minutes=1), job.next_savepoint_at

    def test_is_retried_at_growing_intervals_and_not_only_in_a_week(self, weekly, job_manager, now):
        waits = []
        for _ in range(6):
            wait, now = self.fails(weekly, job_manager, now)
            waits.append(wait)
        assert waits == [1, 5, 15, 60, 360, 360]

        Cluster.objects.update(last_answer_at=now)
        assert advance(now) == savepoints(requested=1, sent=1)
        assert advance(seconds(now, 1)) == savepoints(completed=1)
        weekly.refresh_from_db()
        assert weekly.next_savepoint_at - now >= timedelta(days=7)
        assert self.fails(weekly, job_manager, weekly.next_savepoint_at)[0] == 1, "the count begins at zero again"

    def test_never_delays_the_next_one(self, weekly, job_manager, now):
        set_schedule(weekly, Every(60), "ada", now - timedelta(minutes=2))
        assert self.fails(weekly, job_manager, now)[0] < 1.1

    def test_is_not_retried_when_the_schedule_was_deleted(self, weekly, job_manager, now):
        advance(now)
        job_manager.savepoints[Savepoint.objects.get().trigger_id].failure = "Disk is full"
        weekly.refresh_from_db()
        set_schedule(weekly, None, "ada", now)
        advance(seconds(now, 1))
        weekly.refresh_from_db()
        assert weekly.next_savepoint_at is None

    def test_taken_manually_changes_no_schedule(self, weekly, job_manager, now):
        Job.objects.filter(pk=weekly.pk).update(next_savepoint_at=(later := now + timedelta(days=3)))
        savepoint = request_savepoint(weekly, SavepointOrigin.MANUAL, "ada", now)
        advance(now)
        job_manager.savepoints[savepoint.trigger_id].failure = "Disk is full"
        assert advance(seconds(now, 1)) == savepoints(failed=1)
        weekly.refresh_from_db()
        assert weekly.next_savepoint_at == later


def test_a_refused_request_fails_with_the_engines_sentence(savepoint, job_manager, now):
    job_manager.answers["trigger"] = (400, "No savepoint directory is configured.")
    advance(now)
    assert (reload(savepoint).state, savepoint.failure) == ("failed", "No savepoint directory is configured.")


def test_a_request_with_a_lost_answer_is_looked_up_and_not_repeated(savepoint, job_manager, now):
    job_manager.loses_answer_of = {"trigger"}
    advance(now)
    job_manager.loses_answer_of = set()
    assert reload(savepoint).state == SavepointState.REQUESTED

    assert advance(seconds(now, 5)) == savepoints(completed=1)
    assert job_manager.count("trigger") == 1


def test_a_request_that_never_arrived_is_sent_again_under_the_same_trigger_id(savepoint, job_manager, now):
    job_manager.loses_request_of = {"trigger"}
    advance(now)
    job_manager.loses_request_of = set()

    assert advance(seconds(now, 5)) == savepoints(to_be_sent_again=1)
    advance(seconds(now, 6))
    advance(seconds(now, 7))

    assert reload(savepoint).state == SavepointState.COMPLETED
    assert list(job_manager.savepoints) == [savepoint.trigger_id]


def test_an_old_request_is_not_sent_again(savepoint, job_manager, now):
    job_manager.loses_request_of = {"trigger"}
    advance(now)
    job_manager.loses_request_of = set()
    late = now + SEND_AGAIN_WITHIN
    advance(late)
    advance(late + HISTORY_LAG)
    assert reload(savepoint).failure_value == SavepointReason.LOST()
    assert job_manager.count("trigger") == 1


def test_a_forgotten_savepoint_is_found_in_the_history(rows, savepoint, job_manager, now):
    advance(now)
    job_manager.savepoints.clear()
    advance(seconds(now, 1))
    row = rows.checkpoint(
        savepoint.run, is_savepoint=True, external_path="file:/sp/1", triggered_at=seconds(now, 1), state_size=7
    )

    assert advance(seconds(now, 5)) == savepoints(completed=1)
    done = reload(savepoint)
    assert (done.path, done.checkpoint, done.size) == ("file:/sp/1", row, 7)


@pytest.mark.parametrize("which", ["older", "another request's", "a checkpoint", "another run's"])
def test_another_savepoint_in_the_history_is_not_confused_with_the_requested_one(
    rows, savepoint, job_manager, now, which
):
    advance(now)
    job_manager.savepoints.clear()
    run = savepoint.run if which != "another run's" else rows.run(savepoint.job, current=False)
    rows.checkpoint(
        run,
        is_savepoint=which != "a checkpoint",
        external_path="file:/sp/1",
        triggered_at=seconds(now, -6 if which == "older" else 1),
    )
    if which == "another request's":
        Savepoint.objects.create(
            job=savepoint.job, run=run, origin="manual", state="completed", path="file:/sp/1", requested_at=now
        )

    advance(seconds(now, 1))
    assert reload(savepoint).state == SavepointState.IN_PROGRESS
    advance(seconds(now, 1) + HISTORY_LAG)
    assert reload(savepoint).state == SavepointState.FAILED


def test_a_savepoint_that_failed_after_it_was_forgotten_has_the_cause(rows, savepoint, job_manager, now):
    advance(now)
    job_manager.savepoints.clear()
    rows.failed(savepoint.run, 9, seconds(now, 20)).__class__.objects.update(is_savepoint=True)
    advance(seconds(now, 1))
    assert reload(savepoint).failure == "Checkpoint expired before completing."


def test_stopping_with_a_savepoint_ends_the_job(job, job_manager, now):
    savepoint = request_savepoint(job, SavepointOrigin.MANUAL, "ada", now, stops_job=True)
    advance(now)
    advance(seconds(now, 1))
    assert reload(savepoint).state == SavepointState.COMPLETED
    assert job_manager.jobs[job.current_run.engine_job_id].state == "FINISHED"


def test_requests_to_a_silent_engine_are_retried_until_the_deadline(savepoint, job_manager, now):
    job_manager.loses_request_of = {"trigger", "status"}
    advance(now)
    advance(seconds(now, 5))
    assert reload(savepoint).state == SavepointState.REQUESTED
    advance(now + TIMEOUT + MARGIN)
    assert reload(savepoint).state == SavepointState.FAILED


def test_a_hanging_cluster_does_not_delay_the_others(rows, savepoint, job_manager, now, monkeypatch):
    monkeypatch.setattr(cycle, "call_all", partial(engine_calls.call_all, limit_s=1.0))
    job_manager.hangs_at = {"trigger"}
    with_other = rows.job(rows.cluster(rest_url="http://127.0.0.1:1/"))
    rows.run(with_other)
    other = request_savepoint(with_other, SavepointOrigin.MANUAL, "ada", now)

    advance(now)

    assert reload(savepoint).next_check_at == reload(other).next_check_at == seconds(now, 5)


@pytest.mark.parametrize("killed_in", ["call_all", "settle"])
@pytest.mark.parametrize("cycles_before", [0, 1])
def test_a_worker_killed_at_any_point_causes_one_savepoint(
    savepoint, job_manager, now, monkeypatch, killed_in, cycles_before
):
    moment = now
    for _ in range(cycles_before):
        advance(moment)
        moment = seconds(moment, 1)
    real = getattr(cycle, killed_in)

    def die(*args):
        if killed_in == "call_all":
            real(*args)  # the engine executed the call, then the worker died
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(cycle, killed_in, die)
        with pytest.raises(Killed):
            advance(moment)

    for _ in range(6):
        moment += CLAIM
        advance(moment)

    assert reload(savepoint).state == SavepointState.COMPLETED
    assert job_manager.count("trigger") == 1
    assert len(job_manager.savepoints) == 1


def test_a_worker_killed_before_the_request_left_sends_it_later(savepoint, job_manager, now, monkeypatch):
    def die(*_args):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(cycle, "call_all", die)
        with pytest.raises(Killed):
            advance(now)
    assert job_manager.count("trigger") == 0

    moment = now
    for _ in range(4):
        moment += CLAIM / 2
        advance(moment)
        advance(moment)
    assert reload(savepoint).state == SavepointState.COMPLETED
    assert len(job_manager.savepoints) == 1


def test_a_clock_that_was_set_back_does_not_delay_a_savepoint_in_progress(savepoint, now):
    advance(now)
    advance(now - timedelta(hours=1))
    assert reload(savepoint).state == SavepointState.COMPLETED


@pytest.mark.parametrize(
    ("timeout", "minutes"),
    [
        (3_600_000, 62),
        (60_000, 3),
        (10**30, 24 * 60),
        (None, 12),
        (0, 12),
        ("soon", 12),
    ],
)
def test_a_savepoint_has_the_checkpoint_timeout_of_the_job_and_a_margin(rows, job, now, timeout, minutes):
    job.current_run.checkpoint_config = {} if timeout is None else {"timeout": timeout}
    savepoint = request_savepoint(job, SavepointOrigin.MANUAL, "ada", now)
    assert savepoint.deadline_at == now + timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("status", "state"), [(400, "failed"), (401, "in_progress"), (429, "in_progress"), (500, "in_progress")]
)
def test_an_engine_in_trouble_has_not_failed_the_savepoint(savepoint, job_manager, now, status, state):
    """The savepoint may still complete, and stop the job."""
    advance(now)
    job_manager.answers["status"] = (status, "Not so.")
    advance(seconds(now, 1))
    assert reload(savepoint).state == state
