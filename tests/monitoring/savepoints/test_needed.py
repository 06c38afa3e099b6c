"""A savepoint is kept while any job needs it, even if a job begins to use it during the disposal."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection, transaction

from checkpointing.storage.claims import JobClaims
from monitoring.models import (
    AttemptState,
    Job,
    RestartAttempt,
    RestartTrigger,
    RunState,
    Savepoint,
    SavepointOrigin,
    SavepointState,
)
from monitoring.reasons.recovery import RecoveryReason
from monitoring.reasons.savepoints import SavepointReason as Why
from monitoring.reasons.work import WorkReason
from monitoring.recovery.attempt import open_attempt
from monitoring.recovery.manual import RestartRefused, clone, restart_from
from monitoring.savepoints.disposal import GONE_AFTER, advance_disposals
from monitoring.savepoints.needed import LAUNCH_PENDING
from monitoring.savepoints.retention_actions import NotDisposable, NotPinned, apply_retention, dispose, pin, verdicts
from tests.monitoring.recovery.conftest import LAUNCH
from tests.monitoring.savepoints.snapshots import lay_down
from tests.waiting import eventually


@pytest.fixture
def job(rows, job_manager):
    """Return a job whose retention keeps one savepoint."""
    job = rows.job(rows.cluster(rest_url=job_manager.url), name="flights", launch=LAUNCH, savepoints_kept=1)
    rows.run(job)
    return job


def take(job, now, hours_ago, path=""):
    at = now - timedelta(hours=hours_ago)
    return Savepoint.objects.create(
        job=job,
        run=job.current_run,
        origin=SavepointOrigin.SCHEDULED,
        state=SavepointState.COMPLETED,
        path=path or f"file:/savepoints/savepoint-{hours_ago}",
        requested_at=at,
        completed_at=at,
    )


@pytest.fixture
def old(job, now):
    """Return a savepoint that the retention would dispose of."""
    take(job, now, 1)
    return take(job, now, 2)


def state(savepoint):
    savepoint.refresh_from_db()
    return savepoint.state


def why(job, savepoint, now):
    return next(str(verdict.why) for verdict in verdicts(job, now) if verdict.held.key == savepoint.pk)


class TestAClone:
    @pytest.fixture
    def attempt(self, job, old, now):
        return clone(job, "flights-copy", LAUNCH, old, "ada", now)

    def ended(self, attempt, now, state=AttemptState.SUCCEEDED):
        values = {"state": state, "launch_sent_at": now, "launched_at": now, "ended_at": now}
        RestartAttempt.objects.filter(pk=attempt.pk).update(**values)
        attempt.refresh_from_db()

    def stays(self, job, old, now, reason):
        assert apply_retention(now) == 0
        with pytest.raises(NotDisposable, match=f"^The savepoint is kept: {reason}.$"):
            dispose(old, "not needed", "ada", now)
        assert why(job, old, now) == reason
        assert state(old) == "completed"

    def test_a_clone_that_is_being_started_keeps_its_savepoint(self, job, old, attempt, now):
        self.stays(job, old, now, "another job is being started from it")

    def test_a_clone_whose_run_is_not_stored_yet_keeps_its_savepoint(self, job, old, attempt, now):
        self.ended(attempt, now)
        self.stays(job, old, now + LAUNCH_PENDING - timedelta(seconds=1), "another job is being started from it")
        assert apply_retention(now + LAUNCH_PENDING) == 1

    def test_a_clone_whose_run_has_no_known_origin_keeps_its_savepoint(self, rows, job, old, attempt, now):
        self.ended(attempt, now)
        rows.run(attempt.job, engine_job_id=attempt.engine_job_id)
        self.stays(job, old, now + timedelta(days=9), "a run of another job was started from it")

    @pytest.mark.parametrize("state", [RunState.RUNNING, RunState.RESTARTING, RunState.FAILED, RunState.LOST])
    def test_a_clone_that_no_person_ended_keeps_its_savepoint(self, rows, job, old, attempt, now, state):
        RestartAttempt.objects.all().delete()
        rows.run(attempt.job, state, restored_path=old.path.replace("file:/", "file:///") + "/")
        self.stays(job, old, now, "a run of another job was started from it")

    @pytest.mark.parametrize("state", [RunState.FINISHED, RunState.CANCELED])
    def test_an_ended_clone_keeps_its_savepoint_from_the_retention_only(self, rows, job, old, attempt, now, state):
        self.ended(attempt, now)
        rows.run(attempt.job, state, engine_job_id=attempt.engine_job_id, restored_path=old.path)
        assert apply_retention(now) == 0
        dispose(old, "not needed", "ada", now)
        assert old.__class__.objects.get(pk=old.pk).state == "disposing"

    def test_a_clone_that_continued_from_another_snapshot_needs_no_savepoint(self, rows, job, old, attempt, now):
        self.ended(attempt, now)
        rows.run(attempt.job, RunState.FAILED, engine_job_id=attempt.engine_job_id, restored_path=old.path)
        rows.run(attempt.job, restored_path="file:/chk/9")
        assert apply_retention(now) == 1

    def test_a_clone_that_was_refused_before_its_launch_needs_no_savepoint(self, job, old, attempt, now):
        self.ended(attempt, now, AttemptState.FAILED)
        RestartAttempt.objects.update(launch_sent_at=None)
        assert apply_retention(now) == 1


def test_a_job_started_from_a_savepoint_after_its_disposal_began_keeps_its_files(rows, job, old, job_manager, now):
    dispose(old, "not needed", "ada", now)
    rows.run(rows.job(job.cluster, name="by-hand"), restored_path=old.path)
    assert advance_disposals(now) == {WorkReason.SAVEPOINTS_NOT_DISPOSED: 1}
    assert job_manager.disposed == []
    assert state(old) == "disposing"
    assert old.failure_value == Why.NOT_REMOVED_NOW(why=Why.NEEDED_BY_OTHER_RUN())
    assert old.failure == "It is not deleted now: a run of another job was started from it."


def test_a_claimed_savepoint_is_not_removed_from_its_storage(job, tmp_path, settings, now):
    settings.STATE_ROOTS = [str(tmp_path)]
    directory = lay_down("2.3.0-hashmap-20kb-savepoint-canonical", tmp_path / "savepoint-claimed")
    take(job, now, 1)
    claimed = take(job, now, 2, path=f"file:{directory}")
    dispose(claimed, "not needed", "ada", now)
    job.cluster.unreachable_since = now - GONE_AFTER
    job.cluster.save()
    claims = JobClaims("ab" * 16, str(tmp_path / "checkpoints" / ("ab" * 16)))
    claims.claim(str(directory))

    assert advance_disposals(now) == {WorkReason.SAVEPOINTS_NOT_DISPOSED: 1}
    assert f"is claimed by job {'ab' * 16}" in Savepoint.objects.get(pk=claimed.pk).failure
    assert (directory / "_metadata").exists()

    claims.give_up(str(directory))
    claimed.refresh_from_db()
    assert advance_disposals(claimed.next_check_at) == {WorkReason.SAVEPOINTS_DISPOSED: 1}
    assert not directory.exists()


@pytest.mark.parametrize("gone", [SavepointState.DISPOSING, SavepointState.DISPOSED])
@pytest.mark.parametrize("way", ["restart", "path", "clone"])
def test_no_job_starts_from_a_savepoint_that_is_being_deleted(job, old, now, gone, way):
    Savepoint.objects.filter(pk=old.pk).update(state=gone)
    begin = {
        "restart": lambda: restart_from(job, old, "ada", now),
        "path": lambda: restart_from(job, old.path.replace("file:/", "file:///"), "ada", now),
        "clone": lambda: clone(job, "flights-copy", LAUNCH, old, "ada", now),
    }[way]
    with pytest.raises(RestartRefused) as refused:
        begin()
    why = RecoveryReason.BAD_SAVEPOINT(value=repr(gone.value), allowed=RecoveryReason.FILES_DISPOSED())
    assert refused.value.reason == why
    assert not RestartAttempt.objects.exists()
    assert Job.objects.count() == 1


def in_thread(pool, act):
    """Run `act` in a thread with a separate connection. Return its future and the PID of its PostgreSQL process."""
    process = pool.submit(lambda: connection.cursor().execute("SELECT pg_backend_pid()").fetchone()[0]).result()

    def run():
        try:
            return act()
        finally:
            connection.close()

    return pool.submit(run), process


def waits_or_is_done(future, process):
    def look():
        with connection.cursor() as cursor:
            cursor.execute("SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s", [process])
            found = cursor.fetchone()
        return future.done() or (found is not None and found[0] == "Lock")

    eventually("it waits for the lock, or has ended", look)


@pytest.mark.django_db(transaction=True)
class TestInTheSameMoment:
    """Two concurrent acts: the first one keeps its transaction open until the second one waits for it."""

    def race(self, first, second):
        with ThreadPoolExecutor(1) as pool:
            with transaction.atomic():
                first()
                future, process = in_thread(pool, second)
                waits_or_is_done(future, process)
            return future.exception() or future.result()

    def test_a_clone_after_the_retention_is_refused(self, job, old, now):
        outcome = self.race(
            lambda: apply_retention(now), lambda: clone(Job.objects.get(pk=job.pk), "copy", LAUNCH, old, "ada", now)
        )
        assert isinstance(outcome, RestartRefused)
        assert state(old) == "disposing"
        assert not Job.objects.filter(name="copy").exists()

    def test_the_retention_keeps_a_savepoint_after_a_clone(self, job, old, now):
        assert self.race(lambda: clone(job, "copy", LAUNCH, old, "ada", now), lambda: apply_retention(now)) == 0
        assert state(old) == "completed"

    def test_a_disposal_by_hand_after_a_clone_is_refused(self, job, old, now):
        begun = self.race(
            lambda: clone(job, "copy", LAUNCH, old, "ada", now), lambda: dispose(old, "not needed", "ada", now)
        )
        assert begun.reason == Why.STAYS(reason=Why.NEEDED_BY_OTHER_START())

    def test_a_pin_after_the_retention_is_refused(self, job, old, now):
        outcome = self.race(lambda: apply_retention(now), lambda: pin(old, True, "", "ada"))
        assert isinstance(outcome, NotPinned)
        assert (state(old), old.pinned) == ("disposing", False)

    def test_the_retention_keeps_a_savepoint_after_a_pin(self, job, old, now):
        assert self.race(lambda: pin(old, True, "", "ada"), lambda: apply_retention(now)) == 0
        assert (state(old), old.pinned) == ("completed", True)

    def test_a_restart_of_the_job_after_the_retention_chooses_again(self, job, old, now):
        outcome = self.race(lambda: apply_retention(now), lambda: restart_from(job, old, "ada", now))
        assert isinstance(outcome, RestartRefused)

    def test_an_automatic_restart_and_the_retention_wait_for_each_other(self, job, old, now):
        begun = self.race(
            lambda: open_attempt(job, RestartTrigger.AUTOMATIC, "it died", "waymark", now),
            lambda: apply_retention(now),
        )
        assert begun == 0
        assert state(old) == "completed"


def test_the_note_of_a_deleted_savepoint_may_still_change(job, old, now):
    Savepoint.objects.filter(pk=old.pk).update(state=SavepointState.DISPOSED)
    old.refresh_from_db()
    pin(old, False, "kept for the audit", "ada")
    assert Savepoint.objects.get(pk=old.pk).note == "kept for the audit"
