"""Completed savepoints are looked at: once when they are complete, the newest daily."""

from datetime import timedelta

import pytest

from monitoring.models import Savepoint, SavepointOrigin, SavepointState
from monitoring.savepoints.checking import LOOK_AGAIN, RETRY, check_completed
from monitoring.savepoints.claims import CLAIM
from monitoring.savepoints.cycle import advance
from monitoring.savepoints.keeping import why_it_stays
from monitoring.savepoints.request import request_savepoint
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


def test_one_that_was_just_taken_is_looked_at(job, job_manager, now):
    savepoint = request_savepoint(job, SavepointOrigin.MANUAL, "ada", now)
    for second in range(3):
        advance(now + timedelta(seconds=second))
    advance(now + timedelta(seconds=120))
    assert (reload(savepoint).checked_at, savepoint.problem) == (now + timedelta(seconds=120), "")


def test_the_newest_is_looked_at_again_every_day(savepoint, job, now):
    older = completed(job, now, 5)
    assert check_completed(now) == {}
    assert reload(savepoint).next_check_at == now + LOOK_AGAIN
    assert reload(older).next_check_at is None
    assert (savepoint.checked_at, older.checked_at) == (now, now)


def test_damage_is_told_and_the_next_best_is_protected(savepoint, job, job_manager, now):
    older = completed(job, now, 5)
    job_manager.invalid_paths[savepoint.path] = "state/7.sst is missing"
    assert check_completed(now) == {"found damaged": 1}
    assert reload(savepoint).problem == "state/7.sst is missing"
    assert why_it_stays(older, now) == "It stays: the newest good one."
    assert why_it_stays(savepoint, now) == ""

    job_manager.invalid_paths.clear()
    check_completed(now + LOOK_AGAIN)
    assert reload(savepoint).problem == ""


def test_an_engine_that_cannot_tell_is_not_asked_again(savepoint, job_manager, now):
    job_manager.can_validate = False
    check_completed(now)
    assert (reload(savepoint).checked_at, savepoint.next_check_at) == (None, None)


@pytest.mark.parametrize("trouble", ["silent", "busy"])
def test_an_engine_that_does_not_answer_proves_nothing(savepoint, job_manager, now, trouble):
    if trouble == "silent":
        job_manager.loses_request_of.add("validate")
    else:
        job_manager.answers["validate"] = (503, "starting")
    check_completed(now)
    assert (reload(savepoint).checked_at, savepoint.problem) == (None, "")
    assert savepoint.next_check_at == now + RETRY


def test_a_cluster_that_is_away_is_not_asked(savepoint, job, job_manager, now):
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

    def test_it_is_looked_at_where_it_lies(self, flinks, now):
        directory, savepoint = flinks
        check_completed(now)
        assert (reload(savepoint).checked_at, savepoint.problem) == (now, "")

        file = next(path for path in sorted(directory.iterdir()) if path.name != "_metadata")
        file.unlink()
        assert check_completed(now + LOOK_AGAIN) == {"found damaged": 1}
        assert reload(savepoint).problem == f"{file} is missing"

    def test_metadata_that_is_cut_short_is_damage_of_a_newer_flink_none(self, flinks, now):
        metadata = flinks[0] / "_metadata"
        content = metadata.read_bytes()
        metadata.write_bytes(content[:4] + b"\0\0\0\x63" + content[8:])
        assert check_completed(now) == {}
        metadata.write_bytes(content[:1000])
        Savepoint.objects.update(next_check_at=now)
        assert check_completed(now) == {"found damaged": 1}
        assert reload(flinks[1]).problem == "of its _metadata: it is cut short after 1000 bytes"

    def test_a_storage_that_is_not_mounted_tells_nothing(self, flinks, now, tmp_path, settings):
        settings.STATE_ROOTS = [str(tmp_path / "mount")]
        (tmp_path / "mount").mkdir()
        savepoint = flinks[1]
        Savepoint.objects.update(path=f"{tmp_path}/mount/savepoint-1")
        assert check_completed(now) == {}
        assert (reload(savepoint).checked_at, savepoint.problem) == (None, "")
