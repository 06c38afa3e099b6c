"""Storage that accepts a connection, or opens a file, but never answers: all waits for it are short."""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from monitoring.models import CheckedState, RestartAttempt, Savepoint, SavepointState
from monitoring.reasons.work import WorkReason
from monitoring.recovery.cycle import advance
from monitoring.recovery.stages import check_state
from monitoring.recovery.states import restore_candidates
from monitoring.savepoints import checking, disposal, stored
from monitoring.savepoints.checking import RETRY, check_completed, look_at
from monitoring.savepoints.disposal import GONE_AFTER, advance_disposals
from monitoring.savepoints.storage_threads import STORAGE_THREADS, StorageSilent, TimeLimit
from tests.monitoring.savepoints.snapshots import lay_down, names
from tests.waiting import eventually

# SOON_S is much longer than a read of healthy storage, and much shorter than the limit NEVER_S.
SOON_S, NEVER_S = 0.3, 20.0


@pytest.fixture
def mute() -> Iterator[socket.socket]:
    """Yield a server that accepts connections but never sends anything. They are closed with the server."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture(params=["ftp", "s3"])
def root(request, mute, settings, monkeypatch) -> Iterator[str]:
    host, port = mute.getsockname()
    environment = {"ENDPOINT_URL": f"http://{host}:{port}", "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "key"}
    for name, value in (environment | {"EC2_METADATA_DISABLED": "true", "MAX_ATTEMPTS": "1"}).items():
        monkeypatch.setenv(f"AWS_{name}", value)
    root = f"ftp://{host}:{port}/flink" if request.param == "ftp" else f"s3://mute-{port}/flink"
    importlib.import_module({"ftp": "ftplib", "s3": "s3fs"}[request.param])  # the import takes longer than SOON_S
    settings.STATE_ROOTS = (root,)
    yield root
    mute.close()
    lanes = [f"{kind} {root}" for kind in ("", "files", "removals")]
    eventually("nothing hangs any more", lambda: not any(map(STORAGE_THREADS.hanging, lanes)), 60)


@pytest.fixture
def pipe(tmp_path, settings) -> Iterator[Path]:
    """Yield a snapshot whose `_metadata` is a pipe without a writer, so that opening it hangs in the kernel."""
    settings.STATE_ROOTS = (str(tmp_path),)
    state = lay_down(names()[0], tmp_path / "abc" / "chk-9")
    metadata = state / "_metadata"
    metadata.unlink()
    os.mkfifo(metadata)
    yield state
    eventually("no read hangs", lambda: release(state), 60)


def release(state: Path) -> bool:
    """Release the readers of the pipe, which may open it again. Return whether no read hangs."""
    with contextlib.suppress(OSError):
        os.close(os.open(state / "_metadata", os.O_WRONLY | os.O_NONBLOCK))
    return STORAGE_THREADS.hanging(f" {state.parents[1]}") == 0


def silent(look: Callable[[], object]) -> str:
    began = time.monotonic()
    with pytest.raises(StorageSilent) as text:
        look()
    assert time.monotonic() - began < NEVER_S
    return str(text.value)


def test_every_access_ends_in_time(root, mute):
    path = f"{root}/abc/chk-4"
    text = f"could not be checked within {SOON_S} s: its storage does not respond"
    assert silent(lambda: stored.checkpoints_in(f"{root}/abc", TimeLimit(SOON_S))) == f"{root}/abc {text}"
    mute.settimeout(NEVER_S)
    mute.accept()[0].close()  # the server was contacted
    assert silent(lambda: stored.size_of(path, TimeLimit(SOON_S))) == f"{path} {text}"
    assert silent(lambda: stored.check_files(path, TimeLimit(SOON_S))) == f"{path} {text}"
    assert silent(lambda: stored.remove(path, TimeLimit(SOON_S))) == f"{path} {text}"


def test_a_hanging_file_is_skipped_and_released_later(pipe):
    directory = str(pipe.parent)
    assert stored.checkpoints_in(directory, TimeLimit(NEVER_S)) == [9]
    silent(lambda: stored.size_of(str(pipe), TimeLimit(SOON_S)))
    assert STORAGE_THREADS.hanging(f" {pipe.parents[1]}") == 1
    eventually("it comes back", lambda: release(pipe), 60)


def test_a_root_that_hangs_hides_no_other(root, tmp_path, settings):
    settings.STATE_ROOTS = (root, str(tmp_path))
    lay_down(names()[0], tmp_path / "abc" / "chk-9")
    assert stored.checkpoints_in(str(tmp_path / "abc"), TimeLimit(NEVER_S)) == [9]


@pytest.mark.django_db
class TestWorkers:
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch):
        monkeypatch.setattr("monitoring.recovery.unseen.LISTED_WITHIN_S", SOON_S)
        monkeypatch.setattr(stored, "LISTED_WITHIN_S", SOON_S)
        monkeypatch.setattr(disposal, "READ_WITHIN_S", SOON_S)
        monkeypatch.setattr(checking, "STORAGE_LIMIT_S", SOON_S)

    @pytest.fixture
    def job(self, rows, job_manager):
        job_manager.can_validate = False
        return rows.job(rows.cluster(rest_url=job_manager.url), name="flights")

    @pytest.fixture
    def savepoint(self, rows, job, root, now):
        return Savepoint.objects.create(
            job=job,
            run=rows.run(job),
            origin="scheduled",
            state=SavepointState.COMPLETED,
            requested_at=now,
            next_check_at=now,
            path=f"{root}/savepoint-1",
        )

    def test_a_dead_job_is_restarted_from_a_known_state(self, rows, job, root):
        lost = rows.run(job, "LOST", ended_at=rows.ago(1), checkpoint_config={"interval": 9000})
        rows.checkpoint(lost, 8, external_path=f"{root}/{lost.engine_job_id}/chk-8", triggered_at=rows.ago(21))
        began = time.monotonic()
        places = [state.path.rpartition("/")[2] for state in restore_candidates(job)]
        assert time.monotonic() - began < NEVER_S
        assert places == ["chk-8", "chk-9", "chk-10", "chk-11"]

    @pytest.mark.parametrize("answers", [False, True])
    def test_a_restart_remembers_which_storage_was_silent_when_it_chose(
        self, rows, job_manager, root, now, settings, monkeypatch, answers
    ):
        monkeypatch.setattr("monitoring.recovery.unseen.LISTED_WITHIN_S", 60.0 if answers else 1.0)
        monkeypatch.setattr(check_state, "STATE_READ_WITHIN_S", SOON_S)
        job_manager.can_validate = False
        launch = {"kind": "waymark", "jar_id": "program.py", "program_args": [], "configuration": {}}
        cluster = rows.cluster(rest_url=job_manager.url)
        job = rows.job(cluster, name="flights", launch=launch, auto_restart=True, max_restarts_per_hour=6)
        dead = rows.run(job, "FAILED", final_read_done=True)
        rows.checkpoint(dead, 8, external_path=f"{root}/{dead.engine_job_id}/chk-8", triggered_at=rows.ago(21))
        job_manager.add(dead.engine_job_id, "flights", "FAILED")
        if answers:
            settings.STATE_ROOTS = ()  # no storage is read

        advance(now)

        attempt = RestartAttempt.objects.get()
        assert attempt.restore_path.endswith("/chk-8"), attempt.error
        asked = [] if answers else [f"{root}/{dead.engine_job_id}"]
        assert [each["place"] for each in attempt.silent] == asked
        assert all(0 < each["waited_s"] < NEVER_S for each in attempt.silent)

    def test_the_check_of_a_savepoint_is_retried(self, savepoint, now, monkeypatch):
        monkeypatch.setattr(stored.validate, "__kwdefaults__", {"limit_s": SOON_S})
        assert check_completed(now) == {}
        savepoint.refresh_from_db()
        assert (savepoint.checked_at, savepoint.next_check_at) == (None, now + RETRY)

    def test_a_person_who_checks_a_state_gets_the_error(self, job, root, now):
        assert "its storage does not respond" in silent(lambda: look_at(job, f"{root}/abc/chk-4", now))
        assert not CheckedState.objects.exists()

    def test_a_disposal_is_tried_again(self, savepoint, job, now):
        Savepoint.objects.update(state=SavepointState.DISPOSING, next_check_at=now)
        gone = {"unreachable_since": now - GONE_AFTER, "rest_url": "http://127.0.0.1:1"}
        type(job.cluster).objects.update(**gone)
        assert advance_disposals(now) == {WorkReason.SAVEPOINTS_NOT_DISPOSED: 1}
        savepoint.refresh_from_db()
        assert savepoint.state == SavepointState.DISPOSING
