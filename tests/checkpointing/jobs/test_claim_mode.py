# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""Claim mode CLAIM: a job owns the snapshot that it starts from, and deletes it when it is no longer needed."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from checkpointing.coordinator.ports import PossibleInconsistentState
from checkpointing.ha.completed_checkpoints import HandleCompletedCheckpointStore
from checkpointing.jobs import job_checkpoints
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import StateFile
from checkpointing.rest.client import RequestRefused
from checkpointing.storage import FileCheckpointStorage, read_metadata
from checkpointing.storage.claims import JobClaims
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually, running_job_manager

RETAIN = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
DISCARD = {"execution.checkpointing.externalized-checkpoint-retention": "NO_EXTERNALIZED_CHECKPOINTS"}
RESTART = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}
CLAIM = {"claimMode": "CLAIM"}


async def _savepoint(manager: RunningJobManager) -> Path:
    """Return the savepoint of a job that was stopped with it."""
    job_id = await manager.submit_running()
    return Path((await manager.savepoint(job_id, "stop"))["location"].removeprefix("file:"))


async def _retained(manager: RunningJobManager, count: int = 1) -> list[Path]:
    """Return the retained checkpoints of a canceled job, oldest first."""
    job_id = await manager.submit_running(RETAIN | {"execution.checkpointing.num-retained": str(count)})
    for _ in range(count):
        await manager.checkpoint(job_id)
    await manager.cancel(job_id)
    await manager.until(job_id, "CANCELED")
    directory = Path(manager.settings.checkpoint_directory, job_id)
    return sorted(directory.glob("chk-*"), key=lambda path: int(path.name.removeprefix("chk-")))


def _with_shared_files(chk: Path, *names: str) -> None:
    """Let the checkpoint refer to files in its job's pool, as an incremental checkpoint of a real driver does."""
    checkpoint = read_metadata(str(chk))
    files = []
    for name in names:
        content = name.encode()
        (chk.parent / "shared").mkdir(exist_ok=True)
        (chk.parent / "shared" / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        files.append(StateFile(f"state/{name}", f"shared/{name}", len(content), digest, shared=True))
    storage = FileCheckpointStorage(str(chk.parent.parent), chk.parent.name)
    storage.write_metadata(_adding(checkpoint, tuple(files)))


def _adding(checkpoint: CompletedCheckpoint, files: tuple[StateFile, ...]) -> CompletedCheckpoint:
    operator = checkpoint.operators[0]
    subtask = replace(operator.subtasks[0], files=operator.subtasks[0].files + files)
    operator = replace(operator, subtasks=(subtask, *operator.subtasks[1:]))
    return replace(checkpoint, operators=(operator, *checkpoint.operators[1:]))


def _pool(chk: Path) -> set[str]:
    return {path.name for path in (chk.parent / "shared").glob("*")}


async def _is_deleted(path: Path) -> None:
    await eventually(lambda: not path.exists())


def _claims_on(directory: Path) -> list[str]:
    return [path.name for path in directory.glob("_claimed-*")]


async def test_conformance_j04_a_claimed_savepoint_is_kept_until_a_checkpoint_replaces_it(
    manager: RunningJobManager,
) -> None:
    savepoint = await _savepoint(manager)

    job_id = await manager.submit_running(RETAIN, savepointPath=str(savepoint), **CLAIM)

    restore = manager.launcher.specs[-1].restore
    assert restore is not None
    assert restore.directory == str(savepoint)
    assert (savepoint / "_metadata").is_file()
    statistics = await manager.get(f"/jobs/{job_id}/checkpoints")
    assert (statistics["latest"]["restored"]["id"], statistics["latest"]["restored"]["is_savepoint"]) == (1, False)
    assert await manager.checkpoint(job_id) == 2
    await _is_deleted(savepoint)
    assert manager.launcher.drivers[-1].triggers[-1].full is False
    assert manager.launcher.drivers[-1].completed == [2]


async def test_conformance_j06_a_claimed_checkpoint_is_removed_with_its_directory_and_pool(
    manager: RunningJobManager,
) -> None:
    (chk,) = await _retained(manager)
    _with_shared_files(chk, "a")

    job_id = await manager.submit_running(RETAIN, savepointPath=str(chk), **CLAIM)
    await manager.checkpoint(job_id)

    await _is_deleted(chk.parent)


async def test_conformance_j07_files_of_another_retained_checkpoint_are_kept(manager: RunningJobManager) -> None:
    older, newer = await _retained(manager, 2)
    _with_shared_files(older, "a", "both")
    _with_shared_files(newer, "b", "both")

    job_id = await manager.submit_running(RETAIN, savepointPath=str(newer), **CLAIM)
    await manager.checkpoint(job_id)

    await _is_deleted(newer)
    await eventually(lambda: _pool(older) == {"a", "both"})
    assert read_metadata(str(older)).checkpoint_id == 1


async def test_a_pool_with_an_unreadable_checkpoint_is_kept_completely(manager: RunningJobManager) -> None:
    older, newer = await _retained(manager, 2)
    _with_shared_files(newer, "b")
    (older / "_metadata").write_text('{"magic":"waymark-checkpoint", damaged')

    job_id = await manager.submit_running(RETAIN, savepointPath=str(newer), **CLAIM)
    await manager.checkpoint(job_id)

    await _is_deleted(newer)
    assert _pool(older) == {"b"}


async def _suspended(directory: Path, count: int = 1) -> list[Path]:
    """Return the checkpoints of a job whose job manager, without high availability, has ended; oldest first."""
    async with running_job_manager(directory) as manager:
        job_id = await manager.submit_running(RETAIN | {"execution.checkpointing.num-retained": str(count)})
        for _ in range(count):
            await manager.checkpoint(job_id)
        return [Path(manager.settings.checkpoint_directory, job_id, f"chk-{number + 1}") for number in range(count)]


async def test_conformance_j03_files_of_the_pool_remain_while_a_newer_checkpoint_uses_them(tmp_path: Path) -> None:
    """A job starts again with the same ID, so its old checkpoint and the pool are in its own directory."""
    (chk,) = await _suspended(tmp_path)
    _with_shared_files(chk, "used", "unused")
    async with running_job_manager(tmp_path) as manager:
        manager.launcher.shared_files = ("used",)

        job_id = await manager.submit_running(RETAIN, jobId=chk.parent.name, savepointPath=str(chk), **CLAIM)
        assert _claims_on(chk) == []
        assert await manager.checkpoint(job_id) == 2

        await _is_deleted(chk)
        await eventually(lambda: _pool(chk) == {"used"})
        manager.launcher.drivers[-1].shared_files = ()
        await manager.checkpoint(job_id)
        await eventually(lambda: _pool(chk) == set())


async def test_an_unclaimed_snapshot_is_never_changed_also_in_the_jobs_directory(tmp_path: Path) -> None:
    older, newer = await _suspended(tmp_path, 2)
    _with_shared_files(older, "old")
    _with_shared_files(newer, "both")
    async with running_job_manager(tmp_path) as manager:
        manager.launcher.shared_files = ("both",)

        job_id = await manager.submit_running(DISCARD, jobId=newer.parent.name, savepointPath=str(newer))
        assert await manager.checkpoint(job_id) == 3
        assert manager.launcher.drivers[-1].triggers[-1].full is True
        manager.launcher.drivers[-1].shared_files = ()
        await manager.checkpoint(job_id)
        await manager.cancel(job_id)
        await manager.until(job_id, "CANCELED")
        await _is_deleted(newer.with_name("chk-4"))

    assert {path.name for path in newer.parent.glob("chk-*")} == {"chk-1", "chk-2"}
    assert _pool(newer) == {"old", "both"}


async def test_a_restart_removes_leftovers_of_a_crash_without_high_availability(tmp_path: Path) -> None:
    (chk,) = await _suspended(tmp_path)
    _with_shared_files(chk, "needed")
    (chk.parent / "shared" / "orphan").write_text("x")
    chk.with_name("chk-2").mkdir()
    (chk.with_name("chk-2") / "half").write_text("x")
    async with running_job_manager(tmp_path) as manager:
        job_id = await manager.submit_running(DISCARD, jobId=chk.parent.name)

        assert not chk.with_name("chk-2").exists()
        assert _pool(chk) == {"needed"}
        assert await manager.checkpoint(job_id) == 2  # not the ID of an existing checkpoint
        await manager.cancel(job_id)
        await manager.until(job_id, "CANCELED")
    assert read_metadata(str(chk)).checkpoint_id == 1


async def test_a_restart_before_the_first_checkpoint_starts_from_the_claimed_one(manager: RunningJobManager) -> None:
    savepoint = await _savepoint(manager)
    await manager.submit_running(RESTART, savepointPath=str(savepoint), **CLAIM)

    await manager.launcher.drivers[-1].report_failure("crash")
    driver = await manager.driver(2)

    assert driver.spec.restore is not None
    assert driver.spec.restore.directory == str(savepoint)


async def test_replaced_claimed_snapshot_is_not_a_restore_candidate(manager: RunningJobManager) -> None:
    """If all newer checkpoints are unusable, the error names their faults."""
    savepoint = await _savepoint(manager)
    job_id = await manager.submit_running(RESTART | RETAIN, savepointPath=str(savepoint), **CLAIM)
    newest = await manager.checkpoint(job_id)
    Path(manager.settings.checkpoint_directory, job_id, f"chk-{newest}", "_metadata").unlink()

    await manager.launcher.drivers[-1].report_failure("crash")
    await manager.until(job_id, "FAILED")

    cause = (await manager.get(f"/jobs/{job_id}"))["status-history"][-1]["cause"]
    assert f"chk-{newest}" in cause
    assert str(savepoint) not in cause


@pytest.mark.parametrize("how", ["canceled", "failed"])
async def test_a_claimed_snapshot_is_released_if_the_job_took_no_checkpoint(
    manager: RunningJobManager, how: str
) -> None:
    savepoint = await _savepoint(manager)
    job_id = await manager.submit_running(DISCARD, savepointPath=str(savepoint), **CLAIM)
    assert _claims_on(savepoint) == [f"_claimed-{job_id}"]

    if how == "canceled":
        await manager.cancel(job_id)
        await manager.until(job_id, "CANCELED")
    else:
        await manager.launcher.drivers[-1].report_failure("no", recoverable=False)
        await manager.until(job_id, "FAILED")

    await eventually(lambda: _claims_on(savepoint) == [])
    await manager.submit_running(savepointPath=str(savepoint), **CLAIM)


async def test_two_jobs_cannot_claim_one_savepoint(manager: RunningJobManager) -> None:
    savepoint = await _savepoint(manager)
    jar_id = await manager.upload()
    body = {"entryClass": "wordcount.py:wordcount", "savepointPath": str(savepoint), **CLAIM}

    answers = await asyncio.gather(
        *(manager.post(f"/jars/{jar_id}/run", body) for _ in range(4)), return_exceptions=True
    )

    refusals = [answer for answer in answers if isinstance(answer, RequestRefused)]
    assert len(answers) - len(refusals) <= 1
    assert all(refusal.status == 400 and "is claimed by job" in str(refusal) for refusal in refusals)
    assert len(_claims_on(savepoint)) == len(answers) - len(refusals)


async def test_a_second_claim_names_the_job_that_has_it(manager: RunningJobManager) -> None:
    savepoint = await _savepoint(manager)
    owner = await manager.submit_running(savepointPath=str(savepoint), **CLAIM)

    with pytest.raises(RequestRefused, match=f"savepointPath: .*is claimed by job {owner}"):
        await manager.submit(savepointPath=str(savepoint), **CLAIM)
    await manager.submit_running(savepointPath=str(savepoint))  # starting from it without a claim is allowed


async def test_a_claimed_savepoint_is_not_disposed_of(manager: RunningJobManager) -> None:
    savepoint = await _savepoint(manager)
    owner = await manager.submit_running(savepointPath=str(savepoint), **CLAIM)

    trigger = (await manager.post("/savepoint-disposal", {"savepoint-path": str(savepoint)}))["request-id"]
    result = await manager.operation(f"/savepoint-disposal/{trigger}")

    assert f"is claimed by job {owner}" in result["failure-cause"]["stack-trace"]
    assert (savepoint / "_metadata").is_file()


async def test_a_checkpoint_of_a_running_job_cannot_be_claimed(manager: RunningJobManager) -> None:
    owner = await manager.submit_running(RETAIN)
    number = await manager.checkpoint(owner)
    chk = Path(manager.settings.checkpoint_directory, owner, f"chk-{number}")

    with pytest.raises(RequestRefused, match=f"is a checkpoint of job {owner}, which is RUNNING"):
        await manager.submit(savepointPath=str(chk), **CLAIM)
    assert _claims_on(chk) == []


async def test_outside_the_roots_nothing_is_claimed(manager: RunningJobManager, tmp_path: Path) -> None:
    savepoint = await _savepoint(manager)
    moved = savepoint.rename(tmp_path / savepoint.name)

    with pytest.raises(RequestRefused, match="outside the savepoint directories"):
        await manager.submit(savepointPath=str(moved), **CLAIM)
    assert _claims_on(moved) == []


async def test_a_submission_that_fails_leaves_no_claim(manager: RunningJobManager) -> None:
    savepoint = await _savepoint(manager)
    job_id = await manager.submit_running()

    with pytest.raises(RequestRefused, match="already exists"):
        await manager.submit(savepointPath=str(savepoint), jobId=job_id, **CLAIM)

    assert _claims_on(savepoint) == []


@pytest.mark.parametrize("key", ["execution.state-recovery", "execution.savepoint"])
async def test_the_configuration_alone_can_restore_in_claim_mode(manager: RunningJobManager, key: str) -> None:
    savepoint = await _savepoint(manager)
    mode = "execution.savepoint-restore-mode" if key.endswith("savepoint") else f"{key}.claim-mode"

    job_id = await manager.submit_running(RETAIN | {f"{key}.path": str(savepoint), mode: "claim"})

    assert _claims_on(savepoint) == [f"_claimed-{job_id}"]
    await manager.checkpoint(job_id)
    await _is_deleted(savepoint)


async def test_a_field_of_the_request_overrides_the_configuration(manager: RunningJobManager) -> None:
    savepoint = await _savepoint(manager)

    await manager.submit_running(
        {"execution.state-recovery.claim-mode": "CLAIM"}, savepointPath=str(savepoint), restoreMode="NO_CLAIM"
    )

    assert _claims_on(savepoint) == []


@pytest.mark.parametrize("taken", [True, False])
async def test_a_store_that_does_not_answer_is_retried_until_it_has_the_claimed_snapshot(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    monkeypatch.setattr(job_checkpoints, "_AGAIN_AFTER_S", 0.01)
    savepoint = await _savepoint(manager)
    add = HandleCompletedCheckpointStore.add_checkpoint
    lost: list[int] = []

    def loses_the_first_answer(store: HandleCompletedCheckpointStore, checkpoint: CompletedCheckpoint) -> object:
        is_first = not lost
        if is_first:
            lost.append(checkpoint.checkpoint_id)
        dropped = add(store, checkpoint) if taken or not is_first else ()
        if is_first:
            store._checkpoints = []
            raise PossibleInconsistentState("the connection was lost")
        return dropped

    monkeypatch.setattr(HandleCompletedCheckpointStore, "add_checkpoint", loses_the_first_answer)

    job_id = await manager.submit_running(RETAIN, savepointPath=str(savepoint), **CLAIM)

    assert lost == [1]
    assert await manager.checkpoint(job_id) == 2
    await _is_deleted(savepoint)


# --- changes of the job manager --------------------------------------------------------------------------------------


@pytest.mark.zookeeper
async def test_the_next_job_manager_knows_the_claimed_snapshot(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        savepoint = await _savepoint(first)
        job_id = await first.submit_running(RESTART | RETAIN, savepointPath=str(savepoint), **CLAIM)
    cluster.launcher.drivers[-1].kill(-9)
    assert _claims_on(savepoint) == [f"_claimed-{job_id}"], "no other job may claim it in between"

    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as second:
        cluster.drivers_find(second)
        await leads(second)
        await second.until(job_id, "RUNNING")
        restore = cluster.launcher.specs[-1].restore
        assert restore is not None
        assert restore.directory == str(savepoint)

        assert await second.checkpoint(job_id) == 2
        await _is_deleted(savepoint)


@pytest.mark.zookeeper
async def test_ids_continue_under_an_adopted_driver_and_the_claimed_snapshot_is_subsumed(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        savepoint = await _savepoint(first)
        job_id = await first.submit_running(RETAIN, savepointPath=str(savepoint), **CLAIM)

    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await second.until(job_id, "RUNNING")

        assert await second.checkpoint(job_id) == 2
        assert len(cluster.launcher.drivers) == 2
        await _is_deleted(savepoint)


@pytest.mark.zookeeper
async def test_an_adopted_driver_still_takes_the_required_full_checkpoint(cluster: Cluster) -> None:
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        savepoint = await _savepoint(first)
        job_id = await first.submit_running(RETAIN, savepointPath=str(savepoint))

    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await second.until(job_id, "RUNNING")

        assert await second.checkpoint(job_id) == 2
        assert cluster.launcher.drivers[-1].triggers[-1].full is True
        assert await second.checkpoint(job_id) == 3
        assert cluster.launcher.drivers[-1].triggers[-1].full is False
        assert (savepoint / "_metadata").is_file()


@pytest.mark.zookeeper
async def test_a_removal_that_a_crash_cut_short_is_ended_by_the_next_job_manager(cluster: Cluster) -> None:
    """A kill left the claimed checkpoint outside the store, with half of its files removed."""
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        older, newer = await _retained(first, 2)
        _with_shared_files(older, "a")
        _with_shared_files(newer, "b")
        kept = {path.name: path.read_bytes() for path in newer.iterdir() if path.is_file()}
        job_id = await first.submit_running(RESTART | RETAIN, savepointPath=str(newer), **CLAIM)
        await first.checkpoint(job_id)
        await _is_deleted(newer)
    cluster.launcher.drivers[-1].kill(-9)
    newer.mkdir()
    for name, content in kept.items():
        (newer / name).write_bytes(content)
    (newer / "_metadata").unlink()
    (newer.parent / "shared" / "b").write_bytes(b"b")

    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await second.until(job_id, "RUNNING")

        assert not newer.exists()
        assert _pool(older) == {"a"}


@pytest.mark.zookeeper
async def test_a_removal_that_cannot_be_ended_keeps_no_job_from_its_start(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(claims: JobClaims, path: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        savepoint = await _savepoint(first)
        job_id = await first.submit_running(RETAIN, savepointPath=str(savepoint), **CLAIM)
        await first.checkpoint(job_id)
        await _is_deleted(savepoint)
    cluster.launcher.drivers[-1].kill(-9)
    monkeypatch.setattr(JobClaims, "finish_discarding", refuse)

    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await eventually(lambda: cluster.launcher.specs[-1].attempt == 2)
    assert "what is left of a claimed snapshot stays" in caplog.text


@pytest.mark.zookeeper
@pytest.mark.parametrize("driver_lives", [True, False])
async def test_interrupted_removal_of_a_claimed_snapshot_is_finished(
    cluster: Cluster, tmp_path: Path, driver_lives: bool
) -> None:
    """The claimed checkpoint is no longer in the store, but still has all its files."""
    older, chk = await _suspended(tmp_path, 2)
    _with_shared_files(older, "older")
    _with_shared_files(chk, "claimed")
    kept = tmp_path / "kept"
    shutil.copytree(chk, kept)
    async with cluster.job_manager(WAYMARK_DRIVERS_ON_SHUTDOWN="leave") as first:
        await leads(first)
        job_id = await first.submit_running(RESTART | RETAIN, jobId=chk.parent.name, savepointPath=str(chk), **CLAIM)
        await first.checkpoint(job_id)
        await _is_deleted(chk)
        await eventually(lambda: _pool(older) == {"older"})
    shutil.copytree(kept, chk)
    (chk.parent / "shared" / "claimed").write_bytes(b"claimed")
    if not driver_lives:
        cluster.launcher.drivers[-1].kill(-9)

    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await second.until(job_id, "RUNNING")
        if driver_lives:
            await second.checkpoint(job_id)

        await _is_deleted(chk)
        await eventually(lambda: _pool(older) == {"older"})
        assert read_metadata(str(older)).checkpoint_id == 1
