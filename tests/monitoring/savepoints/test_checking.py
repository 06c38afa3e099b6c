"""Completed savepoints are checked once after their completion, and the newest one daily."""

import shutil
from datetime import timedelta

import pytest

from monitoring.models import (
    Cluster,
    Engine,
    Job,
    RestartAttempt,
    Run,
    Savepoint,
    SavepointOrigin,
    SavepointState,
)
from monitoring.reasons.recovery import RecoveryReason
from monitoring.reasons.savepoints import SavepointReason as Why
from monitoring.reasons.work import WorkReason
from monitoring.recovery import cycle as recovery
from monitoring.recovery.manual import RestartRefused, restart_from
from monitoring.recovery.states import restore_candidates
from monitoring.savepoints.checking import LOOK_AGAIN, RECHECK_IN_STORAGE, RETRY, check_completed
from monitoring.savepoints.claims import CLAIM
from monitoring.savepoints.cycle import advance
from monitoring.savepoints.request import request_savepoint
from monitoring.savepoints.retention_actions import retention_reason, verdicts
from tests.monitoring.savepoints.snapshots import lay_down


@pytest.fixture
def job(rows, job_manager):
    job = rows.job(rows.cluster(rest_url=job_manager.url), name="flights")
    run = rows.run(job)
    job_manager.add(run.engine_job_id, "flights")
    return job


@pytest.fixture
def savepoint(job, now):
    return completed(job, now, 1)


def completed(job, now, hours_ago, **values):
    return Savepoint.objects.create(
        job=job,
        run=job.current_run,
        origin=SavepointOrigin.SCHEDULED,
        state=SavepointState.COMPLETED,
        requested_at=now - timedelta(hours=hours_ago),
        completed_at=now - timedelta(hours=hours_ago),
        **{"next_check_at": now, "path": f"file:/savepoints/savepoint-{hours_ago}", **values},
    )


def reload(savepoint):
    savepoint.refresh_from_db()
    return savepoint


def test_a_new_savepoint_is_checked(job, job_manager, now):
    savepoint = request_savepoint(job, SavepointOrigin.MANUAL, "ada", now)
    for second in range(3):
        advance(now + timedelta(seconds=second))
    advance(now + timedelta(seconds=120))
    assert (reload(savepoint).checked_at, savepoint.problem) == (now + timedelta(seconds=120), "")


def test_the_newest_savepoint_is_checked_every_day(savepoint, job, now):
    Cluster.objects.update(engine=Engine.SPARK)
    older = completed(job, now, 5)
    assert check_completed(now) == {}
    assert reload(savepoint).next_check_at == now + LOOK_AGAIN
    assert reload(older).next_check_at is None
    assert (savepoint.checked_at, older.checked_at) == (now, now)


def test_damage_is_reported_and_the_next_newest_savepoint_is_protected(savepoint, job, job_manager, now):
    older = completed(job, now, 5)
    job_manager.invalid_paths[savepoint.path] = "state/7.sst is missing"
    assert check_completed(now) == {WorkReason.SAVEPOINTS_DAMAGED: 1}
    assert reload(savepoint).problem == "state/7.sst is missing"
    assert retention_reason(older, now) == Why.STAYS(reason=Why.NEWEST_GOOD())
    assert retention_reason(savepoint, now) is None

    job_manager.invalid_paths.clear()
    check_completed(now + LOOK_AGAIN)
    assert reload(savepoint).problem == ""


@pytest.mark.parametrize("status", [400, 403, 404])
def test_only_the_newest_savepoint_is_checked_again_if_the_engine_cannot_check(
    savepoint, job, job_manager, now, status
):
    """Some engines cannot check savepoints, and others may not read this one."""
    older = completed(job, now, 5)
    job_manager.answers["validate"] = (status, "Not here.")
    check_completed(now)
    assert (reload(savepoint).checked_at, savepoint.next_check_at) == (None, now + LOOK_AGAIN)
    assert (reload(older).checked_at, older.next_check_at) == (None, None)


class TestOneThatSomebodyElseRemoved:
    @pytest.fixture
    def removed(self, savepoint, job_manager):
        job_manager.missing_paths.add(savepoint.path)
        return savepoint

    def test_a_missing_savepoint_is_marked_and_the_next_newest_is_checked(self, removed, job, now):
        older = completed(job, now, 5, next_check_at=None)
        assert check_completed(now) == {WorkReason.SAVEPOINTS_GONE: 1}
        assert (reload(removed).state, removed.gone_at, removed.checked_at) == ("completed", now, now)
        assert check_completed(now) == {}
        assert (reload(older).checked_at, older.gone_at) == (now, None)
        assert older.next_check_at == now + RECHECK_IN_STORAGE

    def test_is_neither_the_newest_good_one_nor_counted_by_the_retention(self, removed, job, now):
        older, oldest = completed(job, now, 5), completed(job, now, 6)
        check_completed(now)
        job.savepoints_kept = 1
        job.save()
        found = [(each.held.key, each.is_expired) for each in verdicts(job, now)]
        assert found == [(older.pk, False), (oldest.pk, True)]
        assert retention_reason(removed, now) is None

    def test_is_the_last_state_that_the_automation_tries(self, removed, job, now):
        older = completed(job, now, 5)
        check_completed(now)
        assert [each.savepoint_row for each in restore_candidates(job)] == [older.pk, removed.pk]

    def test_is_refused_before_anything_is_stopped(self, removed, job, now):
        check_completed(now)
        job.launch = {"kind": "waymark", "jar_id": "program.py"}
        with pytest.raises(RestartRefused) as refused:
            restart_from(job, reload(removed), "ada", now)
        assert refused.value.reason.args["allowed"] == RecoveryReason.FILES_GONE()
        assert not RestartAttempt.objects.exists()

    def test_may_return_when_its_storage_was_unreachable(self, removed, job_manager, now):
        check_completed(now)
        job_manager.missing_paths.clear()
        check_completed(now + RECHECK_IN_STORAGE)
        assert (reload(removed).gone_at, removed.problem) == (None, "")

    def test_is_checked_again_soon_and_then_daily(self, removed, now):
        check_completed(now)
        assert reload(removed).next_check_at == now + RECHECK_IN_STORAGE
        Savepoint.objects.update(next_check_at=now + LOOK_AGAIN)
        for days in (1, 2):
            assert check_completed(now + days * LOOK_AGAIN) == {}
            assert reload(removed).next_check_at == now + (days + 1) * LOOK_AGAIN
            assert (removed.gone_at, removed.checked_at) == (now, now + days * LOOK_AGAIN)


@pytest.mark.parametrize("way", ["refuses the launch", "fails when it starts"])
@pytest.mark.parametrize("can_validate", [False, True])
def test_a_failed_restart_marks_the_savepoint_as_missing(savepoint, job, job_manager, now, way, can_validate):
    job.launch = {"kind": "waymark", "jar_id": "program.py"}
    job.save()
    Run.objects.update(state="CANCELED", ended_at=now)
    job_manager.jobs.clear()
    Savepoint.objects.update(next_check_at=None)
    text = f"java.io.FileNotFoundException: Cannot find checkpoint or savepoint file/directory '{savepoint.path}'"
    job_manager.can_validate = can_validate
    job_manager.exception = text
    if way == "refuses the launch":
        job_manager.refused_paths[savepoint.path] = text
    else:
        job_manager.starts_as = "FAILED"
    attempt = restart_from(Job.objects.get(pk=job.pk), savepoint, "ada", now)
    for second in range(0, 20, 2):
        recovery.advance(now + timedelta(seconds=second))
    attempt.refresh_from_db()
    assert attempt.state == "failed"
    assert reload(savepoint).gone_at is not None
    assert "Cannot find checkpoint or savepoint file/directory" in savepoint.problem


def test_a_missing_program_does_not_mark_the_savepoint_as_damaged(savepoint, job, job_manager, now):
    job.launch = {"kind": "waymark", "jar_id": "program.py"}
    job.save()
    Run.objects.update(state="CANCELED", ended_at=now)
    job_manager.jobs.clear()
    job_manager.refused_paths[savepoint.path] = "File /data/input does not exist"
    restart_from(Job.objects.get(pk=job.pk), savepoint, "ada", now)
    for second in range(0, 20, 2):
        recovery.advance(now + timedelta(seconds=second))
    assert RestartAttempt.objects.get().state == "failed"
    assert reload(savepoint).gone_at is None


@pytest.mark.parametrize("trouble", ["silent", "busy"])
def test_an_engine_that_does_not_answer_proves_nothing(savepoint, job_manager, now, trouble):
    if trouble == "silent":
        job_manager.loses_request_of.add("validate")
    else:
        job_manager.answers["validate"] = (503, "starting")
    check_completed(now)
    assert (reload(savepoint).checked_at, savepoint.problem) == (None, "")
    assert savepoint.next_check_at == now + RETRY


def test_an_unreachable_cluster_is_not_contacted(savepoint, job, job_manager, now):
    job.cluster.unreachable_since = now
    job.cluster.save()
    check_completed(now + CLAIM)
    assert job_manager.count("validate") == 0


class TestWhereTheEngineCannotTell:
    @pytest.fixture
    def flinks(self, job, job_manager, now, tmp_path, settings):
        job_manager.can_validate = False
        settings.STATE_ROOTS = [str(tmp_path)]
        directory = lay_down("2.3.0-rocksdb-0b-savepoint-native", tmp_path / "savepoint-1")
        return directory, completed(job, now, 1, path=f"file:{directory}")

    def test_the_savepoint_is_checked_in_its_storage(self, flinks, now):
        directory, savepoint = flinks
        check_completed(now)
        assert (reload(savepoint).checked_at, savepoint.problem) == (now, "")

        file = next(path for path in sorted(directory.iterdir()) if path.name != "_metadata")
        file.unlink()
        assert check_completed(now + RECHECK_IN_STORAGE) == {WorkReason.SAVEPOINTS_DAMAGED: 1}
        assert (reload(savepoint).problem, savepoint.gone_at) == (f"{file} is missing", None)
        assert savepoint.problem_value == Why.FILE_MISSING(file=str(file))

        shutil.rmtree(directory)
        lay_down("2.3.0-rocksdb-0b-savepoint-native", directory.parent / "savepoint-of-another")
        assert check_completed(savepoint.next_check_at) == {WorkReason.SAVEPOINTS_GONE: 1}

    def test_metadata_that_is_cut_short_is_damage_of_a_newer_flink_none(self, flinks, now):
        metadata = flinks[0] / "_metadata"
        content = metadata.read_bytes()
        metadata.write_bytes(content[:4] + b"\0\0\0\x63" + content[8:])
        assert check_completed(now) == {}
        metadata.write_bytes(content[:1000])
        Savepoint.objects.update(next_check_at=now)
        assert check_completed(now) == {WorkReason.SAVEPOINTS_DAMAGED: 1}
        assert reload(flinks[1]).problem == "its _metadata cannot be read: it is truncated after 1000 bytes"

    def test_the_disk_of_another_machine_gives_no_verdict(self, flinks, now):
        savepoint = flinks[1]
        Savepoint.objects.update(path="file://another-machine/savepoint-1")
        assert check_completed(now) == {}
        assert (reload(savepoint).checked_at, savepoint.problem) == (None, "")

    def test_a_storage_that_is_not_mounted_gives_no_verdict(self, flinks, now, tmp_path, settings):
        settings.STATE_ROOTS = [str(tmp_path / "mount")]
        (tmp_path / "mount").mkdir()
        savepoint = flinks[1]
        Savepoint.objects.update(path=f"{tmp_path}/mount/savepoint-1")
        assert check_completed(now) == {}
        assert (reload(savepoint).checked_at, savepoint.problem) == (None, "")
