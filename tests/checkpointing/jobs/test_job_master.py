# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""A job's life from submission to its end, over real HTTP and a real WebSocket, with a fake driver."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from checkpointing.jobs import job_master
from checkpointing.jobs.attempt_starter import AttemptStarter
from checkpointing.jobs.launcher import Loss
from checkpointing.model.messages import DriverState, Heartbeat
from tests.checkpointing.jobs.running_job_manager import (
    LIMIT_S,
    RunningJobManager,
    eventually,
    running_job_manager,
)

FAST_RESTART = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "3",
                "restart-strategy.fixed-delay.delay": "10 ms"}  # fmt: skip


async def test_a_submitted_job_runs_once_its_driver_runs(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(programArgsList=["--input", "/data"], parallelism=2)

    spec = manager.launcher.specs[0]
    assert (spec.job_id, spec.attempt, spec.program_args, spec.parallelism) == (job_id, 1, ("--input", "/data"), 2)
    assert spec.restore is None
    assert Path(spec.program_path).name == "wordcount.py"
    job = await manager.get(f"/jobs/{job_id}")
    order = [job["timestamps"][status] for status in ("INITIALIZING", "CREATED", "RUNNING")]
    assert order == sorted(order)
    assert order[0] > 0


async def test_periodic_checkpoints_start_when_the_job_runs(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running({"execution.checkpointing.interval": "50 ms"})

    async def completed() -> bool:
        return int((await manager.get(f"/jobs/{job_id}/checkpoints"))["counts"]["completed"]) >= 2

    await eventually(completed)
    assert (await manager.driver(1)).completed[:1] == [1]


async def test_a_failed_driver_is_restarted_from_the_newest_checkpoint(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    await manager.checkpoint(job_id)
    newest = await manager.checkpoint(job_id)

    await (await manager.driver(1)).report_failure("the disk is full")
    second = await manager.driver(2)
    await manager.until(job_id, "RUNNING")

    assert second.spec.restore is not None
    assert second.spec.restore.checkpoint_id == newest
    assert second.spec.work_directory != manager.launcher.specs[0].work_directory
    assert second.spec.timeline != manager.launcher.specs[0].timeline
    entries = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
    assert entries[0]["stacktrace"] == "ValueError: the disk is full"
    assert entries[0]["taskName"] == "count"


async def test_a_failure_reads_as_one_sentence_and_keeps_its_stack_trace(
    manager: RunningJobManager, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "checkpointing.jobs")
    job_id = await manager.submit_running(FAST_RESTART)
    sentence = "Server error '500 Internal Server Error' for url http://127.0.0.1/"
    trace = "org.apache.spark.SparkException: [X]\n\tat org.apache.spark.A\nCaused by: HTTPStatusError"
    message = f"\n{sentence}\nFor more information check: …\n SQLSTATE: 38000\n\tat org.apache.spark.A"

    await (await manager.driver(1)).report_failure(message, stacktrace=trace)
    await manager.driver(2)
    await manager.until(job_id, "RUNNING")

    job = await manager.get(f"/jobs/{job_id}")
    causes = {move["status"]: move["cause"] for move in job["status-history"]}
    assert causes["FAILING"] == sentence
    assert job["attempts"][1]["cause"] == sentence
    assert all("\n" not in record.getMessage() for record in caplog.records)
    entry = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"][0]
    assert entry["message"] == sentence
    assert entry["stacktrace"] == f"ValueError: {sentence}\n{trace}"


async def test_a_driver_process_that_dies_is_a_failure_with_the_end_of_its_log(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)

    (await manager.driver(1)).kill(-9)
    await manager.driver(2)

    entry = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"][0]
    assert "through signal 9" in entry["stacktrace"]
    assert "the last line of the log" in entry["stacktrace"]


async def test_a_driver_killed_at_its_memory_limit_reports_the_limit_instead_of_a_signal(
    manager: RunningJobManager,
) -> None:
    await manager.submit_running(FAST_RESTART)
    driver = await manager.driver(1)
    driver.process.exceeded = 2 * 2**30

    driver.kill(-9)
    await manager.driver(2)

    job_id = driver.spec.job_id
    entry = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"][0]
    assert entry["exceptionName"] == "DriverOutOfMemory"
    assert "their memory limit of 2.0 GiB" in entry["message"]


async def test_launcher_explains_the_loss_of_a_driver_first(manager: RunningJobManager) -> None:
    await manager.submit_running(FAST_RESTART)
    driver = await manager.driver(1)
    driver.process.exceeded = 2 * 2**30
    driver.process.loss = Loss("PodEvicted", "Kubernetes evicted the pod.")

    driver.kill(-9)
    await manager.driver(2)

    entry = (await manager.get(f"/jobs/{driver.spec.job_id}/exceptions"))["exceptionHistory"]["entries"][0]
    assert (entry["exceptionName"], entry["message"]) == ("PodEvicted", "Kubernetes evicted the pod.")


async def test_without_a_restart_strategy_a_failure_is_final(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()

    await (await manager.driver(1)).report_failure("no")
    await manager.until(job_id, "FAILED")

    assert len(manager.launcher.drivers) == 1
    job = await manager.get(f"/jobs/{job_id}")
    assert "suppressed by the restart strategy" in job["status-history"][-1]["cause"]
    assert job["end-time"] >= job["start-time"]


async def test_a_failed_job_keeps_no_checkpoint_unless_it_retains_them(
    manager: RunningJobManager,
) -> None:
    job_id = await manager.submit_running(
        {"execution.checkpointing.externalized-checkpoint-retention": "NO_EXTERNALIZED_CHECKPOINTS"}
    )
    await manager.checkpoint(job_id)
    directory = Path(manager.settings.checkpoint_directory, job_id)
    assert directory.exists()

    await (await manager.driver(1)).report_failure("no")
    await manager.until(job_id, "FAILED")

    await eventually(lambda: not directory.exists())


async def test_conformance_k31_a_failure_that_is_not_recoverable_is_never_restarted(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)

    await (await manager.driver(1)).report_failure("no such function", recoverable=False)
    await manager.until(job_id, "FAILED")

    assert len(manager.launcher.drivers) == 1


async def test_a_program_error_before_the_first_running_is_never_restarted(manager: RunningJobManager) -> None:
    manager.launcher.becomes_running = False
    job_id = await manager.submit(FAST_RESTART)

    await (await manager.driver(1)).report_failure("no such column", is_mistake=True)
    await manager.until(job_id, "FAILED")

    assert len(manager.launcher.drivers) == 1
    job = await manager.get(f"/jobs/{job_id}")
    assert "before the job was RUNNING" in job["status-history"][-1]["cause"]


async def test_a_cause_that_may_pass_before_the_first_running_is_restarted(manager: RunningJobManager) -> None:
    manager.launcher.becomes_running = False
    job_id = await manager.submit(FAST_RESTART)

    await (await manager.driver(1)).report_failure("connection refused")
    await (await manager.driver(2)).runs()

    await manager.until(job_id, "RUNNING")


async def test_a_job_that_has_run_is_restarted_after_a_program_error(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    manager.launcher.becomes_running = False
    await (await manager.driver(1)).report_failure("the machine is gone")

    await (await manager.driver(2)).report_failure("no such column", is_mistake=True)
    await (await manager.driver(3)).runs()

    await manager.until(job_id, "RUNNING")


async def test_the_job_fails_when_its_attempts_are_used_up(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART | {"restart-strategy.fixed-delay.attempts": "1"})

    await (await manager.driver(1)).report_failure("one")
    second = await manager.driver(2)
    await manager.until(job_id, "RUNNING")
    await second.report_failure("two")
    await manager.until(job_id, "FAILED")

    assert [spec.attempt for spec in manager.launcher.specs] == [1, 2]


async def test_a_driver_that_cannot_be_launched_is_a_failure(manager: RunningJobManager) -> None:
    manager.launcher.launch_error = "There is no Java."

    job_id = await manager.submit()
    await manager.until(job_id, "FAILED")

    entry = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"][0]
    assert entry["stacktrace"] == "LaunchFailed: There is no Java."


async def test_a_damaged_checkpoint_is_reported_and_an_older_one_is_used(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART | {"execution.checkpointing.num-retained": "2"})
    older = await manager.checkpoint(job_id)
    newer = await manager.checkpoint(job_id)
    files = sorted(Path(manager.settings.checkpoint_directory, job_id, f"chk-{newer}").rglob("2222*"))
    files[0].write_bytes(b"x" * files[0].stat().st_size)

    await (await manager.driver(1)).report_failure("crash")
    second = await manager.driver(2)

    assert second.spec.restore is not None
    assert second.spec.restore.checkpoint_id == older
    entries = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
    assert entries[0]["exceptionName"] == "SnapshotUnusable"
    assert f"checkpoint {newer}" in entries[0]["stacktrace"]


async def test_a_job_that_lost_all_its_state_never_starts_empty(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    checkpoint = await manager.checkpoint(job_id)
    directory = Path(manager.settings.checkpoint_directory, job_id, f"chk-{checkpoint}")
    next(directory.rglob("2222*")).unlink()

    await (await manager.driver(1)).report_failure("crash")
    await manager.until(job_id, "FAILED")

    assert len(manager.launcher.drivers) == 1
    assert (directory / "_metadata").exists(), "what could not be used is left for a person to look at"


async def test_an_internal_error_ends_the_driver_fails_the_job_and_removes_nothing(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    checkpoint = await manager.checkpoint(job_id)

    async def launch(starter: AttemptStarter, *arguments: Any, real: Any = AttemptStarter.launch) -> None:
        await real(starter, *arguments)
        raise RuntimeError("nobody expected this")

    monkeypatch.setattr(AttemptStarter, "launch", launch)
    await (await manager.driver(1)).report_failure("crash")
    await manager.until(job_id, "FAILED")

    assert [driver.process.exited.done() for driver in manager.launcher.drivers] == [True, True]
    assert Path(manager.settings.checkpoint_directory, job_id, f"chk-{checkpoint}", "_metadata").exists()
    shown = await manager.get(f"/jobs/{job_id}/exceptions")
    assert "The job's master failed: nobody expected this" in str(shown)


async def test_a_job_that_allows_it_starts_without_state(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART | {"waymark.allow-empty-start": "true"})
    checkpoint = await manager.checkpoint(job_id)
    (Path(manager.settings.checkpoint_directory, job_id, f"chk-{checkpoint}") / "_metadata").unlink()

    await (await manager.driver(1)).report_failure("crash")

    assert (await manager.driver(2)).spec.restore is None


async def test_checkpoints_that_keep_failing_fail_the_job(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART | {"execution.checkpointing.interval": "50 ms"})
    (await manager.driver(1)).decline_reason = "CHECKPOINT_DECLINED"

    await manager.driver(2)

    entries = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
    assert "Exceeded checkpoint tolerable failure threshold." in entries[-1]["stacktrace"]


async def test_cancel_ends_the_driver_and_the_job(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    driver = await manager.driver(1)

    await manager.cancel(job_id)
    await manager.until(job_id, "CANCELED")

    assert driver.state is DriverState.CANCELED
    await manager.cancel(job_id)


@pytest.mark.parametrize("retention", ["DELETE_ON_CANCELLATION", "RETAIN_ON_CANCELLATION"])
async def test_the_directories_of_a_canceled_job_are_removed_with_its_last_checkpoint(
    manager: RunningJobManager, retention: str
) -> None:
    job_id = await manager.submit_running({"execution.checkpointing.externalized-checkpoint-retention": retention})
    await manager.checkpoint(job_id)
    directory = Path(manager.settings.checkpoint_directory, job_id)

    await manager.cancel(job_id)
    await manager.until(job_id, "CANCELED")

    if retention == "DELETE_ON_CANCELLATION":
        await eventually(lambda: not directory.exists())
    else:
        await eventually(lambda: not (directory / "shared").exists())
        assert (directory / "chk-1" / "_metadata").is_file()


async def test_a_driver_that_ignores_cancel_is_ended_by_force(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path, WAYMARK_CANCEL_TIMEOUT="0.5") as manager:
        manager.launcher.obeys_cancel = False
        job_id = await manager.submit_running()
        driver = await manager.driver(1)

        await manager.cancel(job_id)
        await manager.until(job_id, "CANCELED")

        assert driver.process.exited.result() == -15


@pytest.mark.parametrize("stops", ["the job", "the job manager"])
async def test_a_driver_that_dies_instead_of_ending_is_not_waited_for(tmp_path: Path, stops: str) -> None:
    async with running_job_manager(tmp_path, WAYMARK_CANCEL_TIMEOUT="3600") as manager:
        manager.launcher.obeys_cancel = False
        job_id = await manager.submit_running()
        driver = await manager.driver(1)

        if stops == "the job":
            await manager.cancel(job_id)
        else:
            manager.stop.set()
        await eventually(lambda: driver.cancels)
        driver.kill(-9)

        if stops == "the job":
            await manager.until(job_id, "CANCELED")
        await asyncio.wait_for(manager.shut_down(), LIMIT_S)


async def test_a_job_that_waits_for_its_restart_can_be_canceled(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART | {"restart-strategy.fixed-delay.delay": "1 h"})
    await (await manager.driver(1)).report_failure("crash")
    await manager.until(job_id, "RESTARTING")

    await manager.cancel(job_id)
    await manager.until(job_id, "CANCELED")

    assert len(manager.launcher.drivers) == 1


@pytest.mark.parametrize("registered", [True, False])
async def test_a_driver_that_does_not_run_yet_is_ended_at_once_when_the_job_manager_stops(
    tmp_path: Path, registered: bool
) -> None:
    async with running_job_manager(tmp_path, WAYMARK_CANCEL_TIMEOUT="3600") as manager:
        manager.launcher.becomes_running = manager.launcher.obeys_cancel = False
        manager.launcher.registers = registered
        job_id = await manager.submit()
        await manager.until(job_id, "CREATED")
        [driver] = await eventually(lambda: manager.launcher.drivers)
        await eventually(lambda: not registered or driver.registrations)

        await asyncio.wait_for(manager.shut_down(), LIMIT_S)

        assert driver.process.exited.result() == -15


async def test_a_job_whose_driver_never_runs_can_be_canceled(manager: RunningJobManager) -> None:
    manager.launcher.becomes_running = False
    job_id = await manager.submit()
    await manager.driver(1)

    await manager.cancel(job_id)

    await manager.until(job_id, "CANCELED")


async def test_a_driver_that_finishes_finishes_the_job(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)

    await (await manager.driver(1)).finish()
    await manager.until(job_id, "FINISHED")

    assert len(manager.launcher.drivers) == 1


async def test_a_finished_driver_that_does_not_exit_is_ended(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_master, "END_GRACE_S", 0.2)
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    driver.lingers = True

    await driver.finish()
    await manager.until(job_id, "FINISHED")

    await eventually(driver.process.exited.done)
    await eventually(lambda: driver.process.end_calls)


async def test_an_old_attempt_is_refused(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(FAST_RESTART)
    first = await manager.driver(1)
    await first.report_failure("crash")
    await manager.driver(2)
    await manager.until(job_id, "RUNNING")

    ghost = type(first)(first.spec, first.loop, manager.launcher)
    ghost.start()
    await eventually(lambda: ghost.refusals)

    assert "attempt 1 is refused" in ghost.refusals[0]
    assert await manager.status(job_id) == "RUNNING"


async def test_a_message_of_an_old_session_changes_nothing(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    await driver.send(Heartbeat("an-old-session", job_id, 1, {}))
    session, driver.session_id = driver.session_id, "an-old-session"
    await driver._report(DriverState.FAILED)
    driver.session_id = session

    assert await manager.checkpoint(job_id) == 1
    assert await manager.status(job_id) == "RUNNING"


async def test_a_driver_that_reconnects_continues(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    assert driver.connection is not None
    await driver.connection.close()
    await eventually(lambda: driver.registrations == 2)

    assert await manager.checkpoint(job_id) == 1
    assert len(manager.launcher.drivers) == 1


@pytest.mark.parametrize("seen_running", [True, False])
async def test_silence_past_the_timeout_is_a_lost_driver(tmp_path: Path, seen_running: bool) -> None:
    async with running_job_manager(tmp_path, WAYMARK_HEARTBEAT_TIMEOUT="1.5") as manager:
        manager.launcher.becomes_running = seen_running
        job_id = await manager.submit()
        driver = await manager.driver(1)
        driver.sends_heartbeats = False
        await manager.until(job_id, "FAILED")

        entry = (await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"][0]
        assert entry["exceptionName"] == "HeartbeatTimeout"
        assert driver.process.exited.done()
