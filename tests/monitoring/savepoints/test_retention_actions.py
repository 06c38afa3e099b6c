"""Completed savepoints are kept, pinned or disposed of. A savepoint that a restart needs is never disposed of."""

import shutil
import struct
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection

from checkpointing.model.checkpoint import CheckpointProperties, CompletedCheckpoint, RetentionPolicy
from checkpointing.model.messages import CheckpointKind
from checkpointing.storage import FileCheckpointStorage
from monitoring.models import AuditEntry, RestartTrigger, Savepoint, SavepointOrigin, SavepointState
from monitoring.reasons.savepoints import SavepointReason as Why
from monitoring.reasons.work import WorkReason
from monitoring.recovery.attempt import AttemptOpen, open_attempt
from monitoring.recovery.states import restore_candidates
from monitoring.savepoints.claims import CLAIM
from monitoring.savepoints.disposal import GONE_AFTER, advance_disposals
from monitoring.savepoints.flink_metadata import MAGIC
from monitoring.savepoints.retention_actions import NotDisposable, apply_retention, dispose, pin, retention_reason
from tests.monitoring.savepoints.snapshots import lay_down

JOB_ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def job(rows, job_manager):
    job = rows.job(rows.cluster(rest_url=job_manager.url), name="flights")
    rows.run(job)
    return job


@pytest.fixture
def taken(job, now):
    """Return a function that stores a completed savepoint. `taken(3)` is three hours old."""

    def take(hours_ago, origin=SavepointOrigin.SCHEDULED, **values):
        at = now - timedelta(hours=hours_ago)
        defaults = {"path": f"file:/savepoints/savepoint-{hours_ago}", "requested_at": at, "completed_at": at}
        return Savepoint.objects.create(
            job=job, run=job.current_run, origin=origin, state=SavepointState.COMPLETED, **{**defaults, **values}
        )

    return take


def state(savepoint):
    savepoint.refresh_from_db()
    return savepoint.state


def test_a_savepoint_that_the_retention_releases_is_removed_step_by_step(job, taken, job_manager, now):
    kept, old, older = taken(1), taken(2), taken(3)
    job.savepoints_kept = 1
    job.save()

    assert apply_retention(now) == 2
    assert [state(each) for each in (kept, old, older)] == ["completed", "disposing", "disposing"]
    assert [each.savepoint_row for each in restore_candidates(job)] == [kept.pk]
    advance_disposals(now)
    assert advance_disposals(now + timedelta(seconds=1)) == {WorkReason.SAVEPOINTS_DISPOSED: 2}

    assert [state(each) for each in (kept, old, older)] == ["completed", "disposed", "disposed"]
    assert sorted(job_manager.disposed) == [old.path, older.path]
    why = Why.OUTLASTED(place=2, age=timedelta(hours=2), policy=Why.KEEPS_NEWEST(count=1))
    assert (old.disposal_reason, old.disposal_reason_value) == (str(why), why)
    assert AuditEntry.objects.filter(action="savepoint.disposed").count() == 2
    assert apply_retention(now) == 0


def test_without_a_policy_nothing_is_deleted(job, taken, now):
    for hours in range(20):
        taken(hours)
    assert apply_retention(now) == 0


def test_a_pinned_savepoint_and_the_one_restored_by_the_live_run_are_kept(job, taken, now):
    taken(1)
    pinned, restored, old = taken(2), taken(3), taken(4)
    pin(pinned, True, "before the migration", "ada")
    job.current_run.restored_path = restored.path.replace("file:/", "file:///")
    job.current_run.save()
    job.savepoints_kept = 1
    job.save()
    assert apply_retention(now) == 1
    assert [state(each) for each in (pinned, restored, old)] == ["completed", "completed", "disposing"]


@pytest.mark.parametrize("hours", [1, 3])
def test_a_person_may_delete_any_savepoint_that_is_not_protected(job, taken, now, hours):
    newest, by_hand = taken(1), taken(3, SavepointOrigin.MANUAL)
    chosen = newest if hours == 1 else by_hand
    if chosen is newest:
        with pytest.raises(NotDisposable, match="The savepoint is kept: the newest usable one"):
            dispose(chosen, "not needed", "ada", now)
        assert state(chosen) == "completed"
    else:
        dispose(chosen, "not needed", "ada", now)
        assert (state(chosen), chosen.disposal_reason) == ("disposing", "not needed")
        with pytest.raises(NotDisposable, match="not a completed savepoint"):
            dispose(chosen, "again", "ada", now)


def test_nothing_is_deleted_during_a_restart(job, taken, now):
    taken(1)
    old = taken(2)
    job.savepoints_kept = 1
    job.save()
    open_attempt(job, RestartTrigger.MANUAL, "because", "ada", now)
    assert apply_retention(now) == 0
    assert retention_reason(old, now) == Why.RESTART_UNDER_WAY(epoch=1)


@pytest.mark.django_db(transaction=True)
def test_a_restart_and_a_disposal_in_the_same_moment_never_share_a_savepoint(job, taken, now):
    taken(1)
    for hours in range(2, 8):
        taken(hours)
    job.savepoints_kept = 1
    job.save()

    def restart():
        try:
            open_attempt(job, RestartTrigger.MANUAL, "because", "ada", now)
            return {state.path for state in restore_candidates(job)}
        except AttemptOpen:
            return set()
        finally:
            connection.close()

    def clean():
        try:
            return apply_retention(now)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        cleaning = [pool.submit(clean) for _ in range(3)]
        offered = pool.submit(restart).result()
        total = sum(each.result() for each in cleaning)

    going = set(Savepoint.objects.filter(state=SavepointState.DISPOSING).values_list("path", flat=True))
    assert total == len(going)
    assert offered
    assert not offered & going


class TestDisposal:
    @pytest.fixture
    def going(self, taken, now):
        taken(1)
        old = taken(2)
        dispose(old, "not needed", "ada", now)
        return old

    def steps(self, going, now, count=6):
        at = now
        for _ in range(count):
            advance_disposals(at)
            going.refresh_from_db()
            if going.next_check_at is None:
                return
            at = going.next_check_at

    def test_a_failure_is_reported_and_retried_at_growing_intervals(self, going, job_manager, now):
        job_manager.disposal_fails = "Permission denied"
        self.steps(going, now)
        assert (going.state, going.failure, going.disposal_tries) == ("disposing", "Permission denied", 3)
        assert going.next_check_at - now > timedelta(seconds=100)
        job_manager.disposal_fails = ""
        self.steps(going, going.next_check_at)
        assert (going.state, going.failure) == ("disposed", "")

    def test_a_missing_savepoint_counts_as_disposed(self, going, job_manager, now):
        job_manager.disposed.append(going.path)
        self.steps(going, now)
        assert going.state == "disposed"
        assert going.failure.startswith("There was nothing to delete: Cannot find checkpoint or savepoint file")

    @pytest.mark.parametrize("lost", ["loses_answer_of", "loses_request_of"])
    def test_a_request_with_a_lost_answer_is_repeated(self, going, job_manager, now, lost):
        getattr(job_manager, lost).add("dispose")
        self.steps(going, now, 2)
        assert going.state == "disposing"
        getattr(job_manager, lost).clear()
        self.steps(going, going.next_check_at)
        assert going.state == "disposed"

    def test_a_forgotten_request_is_sent_again(self, going, job_manager, now):
        advance_disposals(now)
        job_manager.disposals.clear()
        self.steps(going, now + timedelta(seconds=1))
        assert going.state == "disposed"

    def test_a_refusal_is_tried_again(self, going, job_manager, now):
        job_manager.answers["dispose"] = (500, "Internal trouble")
        self.steps(going, now, 1)
        assert (going.state, going.failure) == ("disposing", "Internal trouble")

    def test_a_worker_that_dies_leaves_it_to_the_next(self, going, job_manager, now, monkeypatch):
        class Killed(BaseException): ...

        def die(_calls):
            raise Killed

        monkeypatch.setattr("monitoring.savepoints.disposal.call_all", die)
        with pytest.raises(Killed):
            advance_disposals(now)
        monkeypatch.undo()
        assert advance_disposals(now + timedelta(seconds=1)) == {}
        self.steps(going, now + CLAIM)
        assert going.state == "disposed"


class TestOfAClusterThatIsGone:
    """Savepoints of a cluster that no longer exists, but whose storage is available."""

    @pytest.fixture
    def storage(self, tmp_path, settings):
        settings.STATE_ROOTS = [str(tmp_path / "flink")]
        return tmp_path / "flink"

    @pytest.fixture
    def going(self, job, taken, job_manager, storage, now):
        directory = lay_down("2.3.0-rocksdb-0b-savepoint-native", storage / "savepoint-7a1d0f-cf7caa3e7cc8")
        lay_down("2.3.0-hashmap-20kb-savepoint-canonical", storage / "savepoint-of-another")
        taken(1)
        old = taken(2, path=f"file:{directory}")
        dispose(old, "not needed", "ada", now)
        job_manager.answers["dispose"] = (500, "Nobody is to ask it.")
        silent(job, now - GONE_AFTER)
        return old

    def test_files_of_a_deleted_savepoint_are_removed_from_their_storage(self, going, storage, now):
        assert advance_disposals(now) == {WorkReason.SAVEPOINTS_DISPOSED: 1}
        assert state(going) == "disposed"
        assert [each.name for each in storage.iterdir()] == ["savepoint-of-another"]

    def test_a_partly_removed_savepoint_is_removed_completely(self, going, storage, now):
        (storage / "savepoint-7a1d0f-cf7caa3e7cc8" / "_metadata").unlink()
        advance_disposals(now)
        assert (state(going), going.failure) == ("disposed", "")
        assert [each.name for each in storage.iterdir()] == ["savepoint-of-another"]

    def test_a_savepoint_without_a_directory_counts_as_disposed(self, going, storage, now):
        shutil.rmtree(storage / "savepoint-7a1d0f-cf7caa3e7cc8")
        advance_disposals(now)
        assert state(going) == "disposed"
        assert going.failure_value.code is Why.NOTHING_TO_REMOVE
        assert going.failure_value.args["why"].code is Why.NOT_REMOVED_FROM_STORAGE

    @pytest.mark.parametrize("name", ["chk-6", "savepoint-7a1d0f-0123456789ab"])
    def test_a_checkpoint_is_never_removed_for_any_name_of_its_directory(self, going, storage, now, name):
        directory = lay_down("2.3.0-rocksdb-0b-checkpoint", storage / name)
        Savepoint.objects.filter(pk=going.pk).update(path=str(directory))
        assert advance_disposals(now) == {WorkReason.SAVEPOINTS_NOT_DISPOSED: 1}
        assert "is a checkpoint, which belongs to its job" in reload(going).failure
        assert (directory / "_metadata").exists()

    def test_a_savepoint_that_was_moved_to_another_name_is_removed(self, going, storage, now):
        directory = (storage / "savepoint-7a1d0f-cf7caa3e7cc8").rename(storage / "before-the-migration")
        Savepoint.objects.filter(pk=going.pk).update(path=str(directory))
        assert advance_disposals(now) == {WorkReason.SAVEPOINTS_DISPOSED: 1}
        assert not directory.exists()

    @pytest.mark.parametrize(("name", "removed"), [("savepoint-7a1d0f-0123456789ab", True), ("chk-6", False)])
    def test_the_name_of_the_directory_decides_if_the_metadata_has_no_kind(self, going, storage, now, name, removed):
        (storage / name).mkdir()
        (storage / name / "_metadata").write_bytes(MAGIC + struct.pack(">iqii", 3, 6, 0, 0))  # before Flink 1.15
        Savepoint.objects.filter(pk=going.pk).update(path=str(storage / name))
        advance_disposals(now)
        assert (storage / name).exists() is not removed

    @pytest.mark.parametrize("kind", CheckpointKind)
    def test_a_savepoint_of_waymarks_job_manager_is_removed_and_a_checkpoint_never(self, going, storage, now, kind):
        directory = taken_by_waymark(storage, kind)
        Savepoint.objects.filter(pk=going.pk).update(path=directory)
        advance_disposals(now)
        removed = kind is not CheckpointKind.CHECKPOINT
        assert (state(going), Path(directory).exists()) == (("disposed", False) if removed else ("disposing", True))

    def test_outside_the_configured_places_nothing_is_touched(self, going, storage, tmp_path, now):
        elsewhere = lay_down("2.3.0-hashmap-20kb-savepoint-canonical", tmp_path / "savepoint-elsewhere")
        for path in (elsewhere, storage / ".." / "savepoint-elsewhere"):
            Savepoint.objects.filter(pk=going.pk).update(path=str(path), next_check_at=now)
            assert advance_disposals(now) == {WorkReason.SAVEPOINTS_NOT_DISPOSED: 1}  # the request went to the engine
            assert reload(going).failure == "Nobody is to ask it."
        assert len(list(elsewhere.iterdir())) == 3

    def test_only_the_engine_disposes_after_a_short_outage(self, going, job, now):
        silent(job, now - GONE_AFTER + timedelta(seconds=1))
        assert advance_disposals(now) == {WorkReason.SAVEPOINTS_NOT_DISPOSED: 1}


def taken_by_waymark(storage, kind):
    """Write a checkpoint or savepoint without files, and return its directory."""
    store = FileCheckpointStorage(str(storage / "checkpoints"), JOB_ID)
    place = store.initialize_location(7, kind, str(storage / "savepoints"))
    store.write_metadata(
        CompletedCheckpoint(
            job_id=JOB_ID,
            job_name="flights",
            entry_class="flights:main",
            checkpoint_id=7,
            properties=CheckpointProperties(kind, RetentionPolicy.RETAIN_ON_CANCELLATION, forced=kind.is_savepoint),
            trigger_timestamp=1,
            completion_timestamp=2,
            operators=(),
            batches={},
            location=place.directory,
            shared_location=place.shared_directory,
        )
    )
    return place.directory


def silent(job, since):
    job.cluster.unreachable_since = since
    job.cluster.save()


def reload(savepoint):
    savepoint.refresh_from_db()
    return savepoint
