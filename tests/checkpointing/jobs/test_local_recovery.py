# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""When the next attempt continues from the previous attempt's local files, and when from a checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checkpointing.checkpoint_location.local_recovery import LiveQuery, LocalStateUnusable, write_record
from checkpointing.jobs import local_recovery
from checkpointing.jobs.attempts import AttemptRecord, JobDirectory
from checkpointing.jobs.local_recovery import (
    FROM_SHARED,
    LocalRecoveryFacts,
    committed_no_batch,
    declared_shared,
    is_enabled,
    is_group_alive,
    is_shared,
    local_restore,
)
from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.fake_driver import FakeDriver
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, running_job_manager
from tests.checkpointing.jobs.test_job_master import FAST_RESTART

ONCE = FAST_RESTART | {"restart-strategy.fixed-delay.attempts": "1"}
NOBODY = 4_000_000  # no process of this machine has this id


def leave(work: Path, batch: int, *, first: int = 0, started_after: int | None = None, in_flight: bool = False) -> Path:
    """Write the files that a driver with one stateless query leaves. Return the checkpointLocation."""
    location = work / "queries" / "0-words"
    for log in ("offsets", "commits"):
        (location / log).mkdir(parents=True, exist_ok=True)
    (location / "metadata").write_text('{"id":"4f5cc95e-14c6-494d-857f-0093c1bb30ed"}')
    for number in range(first, batch + 1 + in_flight):
        (location / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0,"conf":{{}}}}\n{{"at":{number}}}')
    for number in range(first, batch + 1):
        (location / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    write_record(work, [LiveQuery("wordcount", "queries/0-words", started_after)])
    return location


def came_from_another_boot(work: Path) -> None:
    path = work / "queries.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": "of-another-boot"}))


async def fails(driver: FakeDriver, message: str = "crash", name: str = "ValueError", **left: Any) -> None:
    leave(Path(driver.spec.work_directory), **left)
    await driver.report_failure(message, name=name)


async def exceptions(manager: RunningJobManager, job_id: str) -> list[str]:
    entries = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
    return [f"{entry['exceptionName']}: {entry['message']}" for entry in entries]


async def test_the_next_attempt_continues_where_the_last_one_ended(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    await manager.checkpoint(job_id)
    first = await manager.driver(1)
    await fails(first, batch=9, in_flight=True)
    second = await manager.driver(2)
    await manager.until(job_id, "RUNNING")

    assert second.spec.restore is None
    assert second.spec.local is not None
    assert second.spec.local.work_directory == first.spec.work_directory
    checkpoints = Path(manager.settings.checkpoint_directory, job_id)
    assert second.spec.local.newest_checkpoint == str(checkpoints / "chk-1")
    assert second.spec.timeline == first.spec.timeline, "a sink would take the batch in flight for another one"
    newest = (await manager.get(f"/jobs/{job_id}"))["attempts"][0]
    assert (newest["restored-from"], newest["restored-batches"]) == ("local", {"wordcount": 9})
    assert newest["restored-path"] == first.spec.work_directory
    assert newest["restored-checkpoint-id"] is None
    checkpoints = await manager.get(f"/jobs/{job_id}/checkpoints")
    assert (checkpoints["counts"]["restored"], checkpoints["latest"]["restored"]) == (0, None)
    assert await manager.checkpoint(job_id) == 2


async def test_without_local_recovery_the_newest_checkpoint_is_restored(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART | {"execution.state-recovery.from-local": "false"})
    newest = await manager.checkpoint(job_id)
    await fails(await manager.driver(1), batch=9)
    second = await manager.driver(2)
    assert second.spec.local is None
    assert second.spec.restore is not None
    assert second.spec.restore.checkpoint_id == newest
    attempt = (await manager.get(f"/jobs/{job_id}"))["attempts"][0]
    assert (attempt["restored-from"], attempt["restored-batches"]) == ("checkpoint", {"wordcount": 7})


async def test_unusable_local_state_is_not_retried_and_uses_no_restart(
    manager: RunningJobManager,
) -> None:
    job_id = await manager.submit_running(ONCE)
    newest = await manager.checkpoint(job_id)
    await fails(await manager.driver(1), batch=9)
    await manager.until(job_id, "RUNNING")
    second = await manager.driver(2)
    await fails(second, "the state is broken", batch=9, started_after=9)
    third = await manager.driver(3)
    await manager.until(job_id, "RUNNING")
    assert third.spec.local is None
    assert third.spec.restore is not None
    assert third.spec.restore.checkpoint_id == newest
    assert third.spec.timeline != second.spec.timeline
    assert (await exceptions(manager, job_id))[0] == "ValueError: the state is broken"
    await fails(third, batch=9, started_after=9)
    await manager.until(job_id, "FAILED")


async def test_an_attempt_that_continued_and_committed_can_be_continued(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    await manager.checkpoint(job_id)
    first = await manager.driver(1)
    await fails(first, batch=9)
    second = await manager.driver(2)
    await fails(second, batch=10, started_after=9)
    third = await manager.driver(3)
    assert third.spec.local is not None
    assert third.spec.local.work_directory == second.spec.work_directory
    assert third.spec.timeline == first.spec.timeline
    remaining = {path.name for path in Path(first.spec.work_directory).iterdir()}
    assert remaining <= {"driver.log", "driver.json"}, "only the attempt that is gone on with is kept"
    assert (Path(second.spec.work_directory) / "queries").is_dir()


async def test_damaged_local_state_is_reported_and_a_checkpoint_is_used(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    newest = await manager.checkpoint(job_id)
    first = await manager.driver(1)
    location = leave(Path(first.spec.work_directory), 9)
    (location / "commits" / "9").write_text("v1\n{")
    await first.report_failure("crash")
    second = await manager.driver(2)
    assert second.spec.restore is not None
    assert second.spec.restore.checkpoint_id == newest
    result = (await exceptions(manager, job_id))[0]
    assert result.startswith(
        "LocalStateUnusable: The local state of attempt 1 cannot be used: query 'wordcount': commits/9"
    )


async def test_a_state_older_than_the_file_sink_fails_no_attempt(manager: RunningJobManager, tmp_path: Path) -> None:
    """The driver died between the sink's commit and the batch's commit."""
    job_id = await manager.submit_running(FAST_RESTART)
    newest = await manager.checkpoint(job_id)
    first = await manager.driver(1)
    work = Path(first.spec.work_directory)
    location = leave(work, 9, in_flight=True)
    for place in ("_metadata", "0"):
        (location / "state" / "0" / place).mkdir(parents=True)
        (location / "state" / "0" / place / "metadata").write_text("v1\n{}")
    sink = tmp_path / "out" / "_spark_metadata"
    sink.mkdir(parents=True)
    (sink / "10").write_text("v1\n")
    write_record(work, [LiveQuery("wordcount", "queries/0-words", None, str(sink.parent), {"0": 1})])
    await first.report_failure("crash")
    second = await manager.driver(2)
    assert second.spec.local is None
    assert second.spec.restore is not None
    assert second.spec.restore.checkpoint_id == newest
    assert "_spark_metadata has batch 10, so Spark would skip it" in (await exceptions(manager, job_id))[0]


async def test_without_a_checkpoint_local_state_is_tried_again_and_counted(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(ONCE)
    await fails(await manager.driver(1), batch=9)
    second = await manager.driver(2)
    assert second.spec.local is not None
    await fails(second, batch=9, started_after=9)
    await manager.until(job_id, "FAILED")
    assert len(manager.launcher.drivers) == 2


async def test_a_driver_that_died_before_the_take_over_does_not_move_the_state(
    manager: RunningJobManager,
) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    first = await manager.driver(1)
    await fails(first, batch=9)
    second = await manager.driver(2)
    second.kill(-9)
    third = await manager.driver(3)
    await manager.until(job_id, "RUNNING")
    assert third.spec.local is not None
    assert third.spec.local.work_directory == first.spec.work_directory
    assert (Path(first.spec.work_directory) / "queries").is_dir()


async def test_another_job_with_the_same_id_does_not_use_the_local_state(tmp_path: Path) -> None:
    job_id = "ab" * 16
    async with running_job_manager(tmp_path) as first:
        await first.submit_running(jobId=job_id)
        leave(Path(first.launcher.specs[0].work_directory), 9)
    async with running_job_manager(tmp_path) as second:
        await second.submit_running(jobId=job_id)
        assert second.launcher.specs[0].attempt == 2
        assert second.launcher.specs[0].local is None


async def test_a_value_that_is_neither_true_nor_false_is_refused(manager: RunningJobManager) -> None:
    with pytest.raises(
        RequestRefused, match=r"execution\.state-recovery\.from-local: 'maybe' is not allowed"
    ) as refused:
        await manager.submit({"execution.state-recovery.from-local": "maybe"})
    assert refused.value.status == 400


def test_flinks_old_name_of_the_setting_is_used_without_the_new_one() -> None:
    assert is_enabled({})
    assert not is_enabled({"state.backend.local-recovery": "false"})
    assert is_enabled({"state.backend.local-recovery": "false", "execution.state-recovery.from-local": "TRUE"})
    with pytest.raises(InvalidConfiguration, match=r"state\.backend\.local-recovery"):
        is_enabled({"state.backend.local-recovery": "yes"})


def test_shared_storage_is_declared_or_recognized_by_its_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert declared_shared({}) is None
    assert declared_shared({FROM_SHARED: "True"}) is True
    assert declared_shared({FROM_SHARED: "false"}) is False
    with pytest.raises(InvalidConfiguration, match=r"from-shared: 'nfs' is not allowed"):
        declared_shared({FROM_SHARED: "nfs"})
    for kind, shared in (("nfs", True), ("nfs4", True), ("ext4", False), ("fuse.sshfs", False), ("", False)):
        monkeypatch.setattr(local_recovery, "filesystem_of", lambda path, kind=kind: kind)
        assert is_shared(None, tmp_path) is shared
        assert is_shared(True, tmp_path)
        assert not is_shared(False, tmp_path)


# --- the decision itself ---------------------------------------------------------------------------------------------

HERE = LocalRecoveryFacts(host="here", has_snapshot=True, rescales=False)
NUMBERS = BatchNumbers("job", 0, 10_000)


@pytest.fixture
def former(tmp_path: Path) -> AttemptRecord:
    work = tmp_path / "attempt-1"
    leave(work, 9, started_after=4, in_flight=True)
    return AttemptRecord(1, "timeline", str(work), 0, NUMBERS, "", host="here", pid=NOBODY)


def test_local_state_of_another_machine_is_not_searched(former: AttemptRecord) -> None:
    assert local_restore(former, HERE) is not None
    assert local_restore(former, replace(HERE, host="there")) is None
    assert local_restore(replace(former, pid=None), HERE) is None


SHARED = replace(HERE, claims_are_known=True, from_shared=True)
ELSEWHERE = replace(SHARED, host="there")


@pytest.mark.parametrize(("host", "boot"), [("here", "same"), ("here", "other"), ("there", "same"), ("there", "other")])
@pytest.mark.parametrize("shared", [True, False, None])
@pytest.mark.parametrize("claims", [True, False])
def test_host_and_boot_do_not_count_on_shared_storage_whose_claims_are_known(
    former: AttemptRecord, host: str, boot: str, shared: bool | None, claims: bool
) -> None:
    if boot == "other":
        came_from_another_boot(Path(former.work_directory))
    facts = replace(HERE, host=host, from_shared=shared, claims_are_known=claims)
    if claims and shared:
        found = local_restore(former, facts)
        assert found is not None
        assert (found.batches, found.timeline, found.of_any_boot) == ({"wordcount": 9}, "timeline", True)
    elif host == "there":
        assert local_restore(former, facts) is None
    elif boot == "other":
        with pytest.raises(LocalStateUnusable, match="the machine was restarted since"):
            local_restore(former, facts)
    else:
        assert local_restore(former, facts) is not None


def test_the_process_of_another_machine_is_not_searched_on_this_one(former: AttemptRecord) -> None:
    """A local process may have the same PID, and the PID may be missing if the job manager died at the start."""
    living = os.getpgid(0)
    assert local_restore(replace(former, pid=living), ELSEWHERE) is not None
    assert local_restore(replace(former, pid=None), ELSEWHERE) is not None
    with pytest.raises(LocalStateUnusable, match="still running"):
        local_restore(replace(former, pid=living), SHARED)


def test_the_files_are_checked_on_shared_storage_too(former: AttemptRecord) -> None:
    commit = Path(former.work_directory) / "queries" / "0-words" / "commits" / "9"
    commit.write_text("v1\n{")
    with pytest.raises(LocalStateUnusable, match="commits/9"):
        local_restore(former, ELSEWHERE)


def test_unreachable_local_state_is_not_used(former: AttemptRecord) -> None:
    assert local_restore(replace(former, work_directory="/mnt/of-that-machine/attempt-1"), ELSEWHERE) is None


def test_a_committed_attempt_of_another_machine_counts_as_progress(former: AttemptRecord) -> None:
    came_from_another_boot(Path(former.work_directory))
    assert not committed_no_batch(replace(former, local_directory="/of/attempt-0"))


def test_an_attempt_that_committed_nothing_gained_nothing_over_its_checkpoint(former: AttemptRecord) -> None:
    leave(Path(former.work_directory), 9, started_after=9)
    assert local_restore(former, HERE) is None
    assert local_restore(former, replace(HERE, has_snapshot=False)) is not None


def test_after_a_restart_of_the_machine_nothing_is_trusted(former: AttemptRecord) -> None:
    came_from_another_boot(Path(former.work_directory))
    with pytest.raises(LocalStateUnusable, match="the machine was restarted since"):
        local_restore(former, HERE)


def test_a_batch_in_flight_cannot_be_rescaled(former: AttemptRecord) -> None:
    with pytest.raises(LocalStateUnusable, match="the last batch is not committed"):
        local_restore(former, replace(HERE, rescales=True))


def test_a_surviving_process_of_the_driver_prevents_local_recovery(former: AttemptRecord) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        assert is_group_alive(child.pid)
        with pytest.raises(LocalStateUnusable, match="still running"):
            local_restore(replace(former, pid=child.pid), HERE)
    finally:
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_group_alive(child.pid), "it is dead, though nobody has asked for its exit code"
    child.communicate()


@pytest.mark.parametrize(("second_batch", "goes_on"), [(4, False), (5, True)])
def test_every_query_must_continue_after_a_local_recovery(tmp_path: Path, second_batch: int, goes_on: bool) -> None:
    work = tmp_path / "attempt-2"
    location = leave(work, 9, started_after=8)
    other = leave(tmp_path / "other", second_batch, started_after=4)
    other.rename(location.with_name("1-other"))
    write_record(
        work, [LiveQuery("wordcount", "queries/0-words", 8), LiveQuery("other", "queries/1-other", started_after=4)]
    )
    record = AttemptRecord(
        2, "timeline", str(work), 0, NUMBERS, "", host="here", pid=NOBODY, local_directory="/of/attempt-1"
    )
    assert (local_restore(record, HERE) is not None) is goes_on
    assert not committed_no_batch(record)


def attempts_with_logs(tmp_path: Path, count: int) -> JobDirectory:
    jobs = JobDirectory(tmp_path, "job")
    for number in range(1, count + 1):
        leave(jobs.attempt_directory(number), 1)
        (jobs.attempt_directory(number) / "driver.log").write_text("0123456789")
        (jobs.attempt_directory(number) / "driver.log.1").touch()
    return jobs


def left_of(jobs: JobDirectory) -> dict[str, set[str]]:
    return {path.name: {entry.name for entry in path.iterdir()} for path in jobs.path.iterdir()}


def test_old_attempts_keep_newest_logs_and_needed_state(tmp_path: Path) -> None:
    jobs = attempts_with_logs(tmp_path, 14)
    jobs.remove_old_attempts(14, needed=str(jobs.attempt_directory(2)))
    logs = {"driver.log", "driver.log.1"}
    whole = {"queries", "queries.json"} | logs
    kept = {f"attempt-{number}": logs for number in range(5, 14)}
    assert left_of(jobs) == {"attempt-2": whole, **kept, "attempt-14": whole}


def test_the_log_of_the_first_failure_and_the_newest_logs_are_kept(tmp_path: Path) -> None:
    jobs = attempts_with_logs(tmp_path, 20)
    jobs.remove_old_attempts(20, first_failure=3, room=45)
    assert set(left_of(jobs)) == {"attempt-3", "attempt-17", "attempt-18", "attempt-19", "attempt-20"}
