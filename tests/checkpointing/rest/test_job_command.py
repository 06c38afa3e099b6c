"""`manage.py job` with a running job manager."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from checkpointing.rest import job_logs
from checkpointing.rest.client import JobManagerClient, JobManagerUnreachable, RequestRefused
from checkpointing.rest.job_operations import JobNotFound, JobOperations, StillInProgress, find_job
from checkpointing.storage.locations import local_path
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually

RETAINED = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}


async def run(
    manager: RunningJobManager, *arguments: str, stdout: StringIO | None = None, stderr: StringIO | None = None
) -> str:
    out = stdout or StringIO()
    more = {"stdout": out, "stderr": stderr or StringIO()}
    await asyncio.to_thread(call_command, "job", *arguments, "--jobmanager", manager.address, **more)
    return out.getvalue()


async def run_json(manager: RunningJobManager, *arguments: str) -> dict[str, Any]:
    return dict(json.loads(await run(manager, *arguments, "--json")))


async def refused(manager: RunningJobManager, *arguments: str, stdout: StringIO | None = None) -> CommandError:
    with pytest.raises(CommandError) as error:
        await run(manager, *arguments, stdout=stdout)
    return error.value


async def test_list_shows_jobs_by_their_status(manager: RunningJobManager) -> None:
    running, ended = await manager.submit_running(jobName="Words"), await manager.submit_running(jobName="Letters")
    await manager.cancel(ended)
    await manager.until(ended, "CANCELED")
    manager.launcher.registers = False
    starting = await manager.submit(jobName="Digits")

    async def listed(*options: str) -> set[str]:
        return {job["jid"] for job in (await run_json(manager, "list", *options))["jobs"]}

    assert await listed() == {running, starting}
    assert await listed("-r") == {running}
    assert await listed("-s") == {starting}
    assert await listed("-a") == {running, starting, ended}
    assert f"{running}  Words  RUNNING" in await run(manager, "list", "--running")


async def test_show_prints_status_program_and_checkpoints(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running({"my.password": "hunter2"}, jobName="Words")
    checkpoint = await manager.checkpoint(job_id)

    shown = await run(manager, "show", "Words")

    lines = dict(line.split("  ", 1) for line in shown.splitlines())
    assert lines["Id"].strip() == job_id
    assert lines["Status"].strip().startswith("RUNNING, started ")
    assert lines["Driver"].strip() == f"pid {(await manager.driver(1)).process.pid}, attempt 1"
    assert lines["Program"].strip().startswith("wordcount.py:wordcount in ")
    assert lines["Checkpoints"].strip() == "1 completed, 0 failed, 0 in progress"
    assert lines["Last checkpoint"].strip().startswith(f"{checkpoint}, ")
    as_json = await run_json(manager, "show", job_id[:8])
    assert as_json["job"]["state"] == "RUNNING"
    assert "hunter2" not in json.dumps(as_json)


async def test_savepoint_is_stored_at_the_printed_location(manager: RunningJobManager, tmp_path: Path) -> None:
    job_id = await manager.submit_running()
    target = Path(manager.settings.savepoint_directory, "mine")

    output = await run(manager, "savepoint", job_id, str(target))
    saved = await run_json(manager, "savepoint", job_id)

    location = output.rpartition("Savepoint: ")[2].strip()
    assert Path(local_path(location)).parent == target
    assert await asyncio.to_thread(Path(local_path(saved["location"]), "_metadata").is_file)
    assert await manager.status(job_id) == "RUNNING"


async def test_detached_savepoint_returns_its_trigger_id(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()

    triggered = await run_json(manager, "savepoint", job_id, "--detached")

    assert "location" in await manager.operation(f"/jobs/{job_id}/savepoints/{triggered['request-id']}")


async def test_stop_ends_the_job_with_a_savepoint(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()

    stopped = await run_json(manager, "stop", "--savepointPath", manager.settings.savepoint_directory, job_id)

    assert await manager.status(job_id) == "FINISHED"
    assert await asyncio.to_thread(Path(local_path(stopped["location"]), "_metadata").is_file)


async def test_cancel_waits_until_the_job_is_canceled(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()

    assert await run_json(manager, "cancel", job_id) == {"job": job_id, "state": "CANCELED"}
    assert await manager.status(job_id) == "CANCELED"


async def test_restart_of_a_running_job_starts_from_a_savepoint_of_now(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running({"my.password": "hunter2"}, jobName="Words", programArgsList=["--a", "b"])

    restarted = await run_json(manager, "restart", "Words")

    assert (restarted["restarted"], await manager.status(job_id)) == (job_id, "FINISHED")
    spec = manager.launcher.specs[-1]
    assert (spec.job_id, spec.job_name, spec.program_args) == (restarted["job"], "Words", ("--a", "b"))
    assert spec.configuration == {"my.password": "hunter2"}
    assert spec.restore is not None
    assert (spec.restore.directory, spec.restore.is_savepoint) == (local_path(restarted["from"]), True)


async def test_restart_of_an_ended_job_starts_from_its_newest_state(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(RETAINED)
    await manager.savepoint(job_id)
    checkpoint = await manager.checkpoint(job_id)
    await manager.cancel(job_id)
    await manager.until(job_id, "CANCELED")

    restarted = await run_json(manager, "restart", job_id)

    assert restarted["from"].endswith(f"chk-{checkpoint}")
    restore = manager.launcher.specs[-1].restore
    assert restore is not None
    assert restore.checkpoint_id == checkpoint


@pytest.mark.parametrize("action", ["run-again", "restart"])
async def test_a_job_that_ended_by_itself_is_run_again_from_its_final_savepoint(
    manager: RunningJobManager, action: str
) -> None:
    job_id = await manager.submit_running(jobName="Words", programArgsList=["--a", "b"])
    await (await manager.driver(1)).ends()
    await manager.until(job_id, "FINISHED")

    again = await run_json(manager, action, "Words")

    spec = manager.launcher.specs[-1]
    assert (spec.job_id, spec.job_name, spec.program_args) == (again["job"], "Words", ("--a", "b"))
    assert spec.restore is not None
    assert (spec.restore.directory, spec.restore.is_savepoint) == (local_path(again["from"]), True)

    await manager.launcher.drivers[-1].ends(has_advanced=False)
    await manager.until(again["job"], "FINISHED")
    third = await run_json(manager, action, again["job"])
    assert third["from"] == again["from"], "a run without a new batch leaves the state where it was"


async def test_a_job_that_never_had_a_batch_is_run_again_without_state(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(jobName="Words")
    await (await manager.driver(1)).ends(has_advanced=False)
    await manager.until(job_id, "FINISHED")

    assert (await run_json(manager, "run-again", "Words"))["from"] is None

    assert manager.launcher.specs[-1].restore is None


async def test_run_again_waits_for_the_end_if_requested(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(jobName="Words")
    await (await manager.driver(1)).ends()
    await manager.until(job_id, "FINISHED")

    running = asyncio.create_task(run_json(manager, "run-again", "Words", "--wait"))
    await eventually(lambda: len(manager.launcher.drivers) == 2)
    again = manager.launcher.specs[-1].job_id
    await manager.until(again, "RUNNING")
    assert not running.done()
    await manager.launcher.drivers[-1].ends()

    assert (await running)["job"] == again
    assert await manager.status(again) == "FINISHED"


async def test_a_job_that_runs_is_not_run_again(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()

    error = await refused(manager, "run-again", job_id)

    assert str(error) == (f"Job {job_id} is RUNNING. A job can run again only after it has ended. Nothing was started.")
    assert await manager.status(job_id) == "RUNNING"


async def test_restart_skips_a_damaged_snapshot_and_reports_it(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(RETAINED)
    savepoint = (await manager.savepoint(job_id))["location"]
    checkpoint = await manager.checkpoint(job_id)
    statistics = await manager.get(f"/jobs/{job_id}/checkpoints")
    await manager.cancel(job_id)
    await manager.until(job_id, "CANCELED")
    newest = Path(local_path(statistics["latest"]["completed"]["external_path"]))
    await asyncio.to_thread(newest.joinpath("_metadata").unlink)

    output = await run(manager, "restart", job_id)

    assert "Not usable: " in output
    assert f"chk-{checkpoint}" in output
    assert f"Newest usable state: {savepoint}" in output


async def test_restart_from_a_savepoint_cancels_the_running_job_with_another_one(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    chosen = (await manager.savepoint(job_id))["location"]

    output = await run(manager, "restart", job_id, "--from-savepoint", chosen)

    assert await manager.status(job_id) == "CANCELED"
    taken = output.partition("Savepoint: ")[2].splitlines()[0]
    assert await asyncio.to_thread(Path(local_path(taken), "_metadata").is_file)
    restore = manager.launcher.specs[-1].restore
    assert restore is not None
    assert restore.directory == local_path(chosen)


async def test_restart_that_cannot_work_leaves_the_job_running(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    await manager.checkpoint(job_id)
    own = (await manager.get(f"/jobs/{job_id}/checkpoints"))["latest"]["completed"]["external_path"]

    missing = await refused(manager, "restart", job_id, "--from-savepoint", "/nowhere")
    deleted = await refused(manager, "restart", job_id, "--from-savepoint", local_path(own))
    assert missing.returncode == deleted.returncode == 1
    assert str(missing).startswith("--from-savepoint: /nowhere")
    assert "deletes it when the job is canceled" in str(deleted)
    (jar,) = (await manager.get("/jars"))["files"]
    await manager.delete_program(jar["id"])
    assert "no longer stores the program" in str(await refused(manager, "restart", job_id))
    assert await manager.status(job_id) == "RUNNING"
    assert len(manager.launcher.drivers) == 1


async def test_restart_of_a_job_without_snapshots_requires_a_savepoint(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    await manager.cancel(job_id)
    await manager.until(job_id, "CANCELED")

    assert "Give a location with --from-savepoint" in str(await refused(manager, "restart", job_id))
    assert len(manager.launcher.drivers) == 1


async def test_a_failed_operation_prints_the_cause(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    (await manager.driver(1)).decline_reason = "CHECKPOINT_DECLINED"

    error = await refused(manager, "savepoint", job_id)
    drained = await refused(manager, "stop", job_id, "--drain")
    outside = await refused(manager, "savepoint", job_id, "/elsewhere")

    assert (error.returncode, "the fake driver declines" in str(error)) == (1, True)
    assert str(drained).startswith("A PySpark job cannot be drained")
    assert str(outside).startswith("target-directory: /elsewhere is outside the savepoint directories")
    assert await manager.status(job_id) == "RUNNING"


@pytest.mark.parametrize("action", ["savepoint", "stop"])
async def test_a_refused_savepoint_is_never_in_progress(manager: RunningJobManager, action: str) -> None:
    job_id = await manager.submit_running()
    await manager.cancel(job_id)
    await manager.until(job_id, "CANCELED")
    out = StringIO()

    assert "is CANCELED, not RUNNING" in str(await refused(manager, action, job_id, stdout=out))
    assert out.getvalue() == ""
    assert "Driver" not in await run(manager, "show", job_id)


async def is_in_progress(manager: RunningJobManager, job_id: str) -> bool:
    return bool((await manager.get(f"/jobs/{job_id}/checkpoints"))["counts"]["in_progress"] == 1)


async def test_a_savepoint_that_takes_longer_than_the_timeout_continues(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    (await manager.driver(1)).acknowledges = False
    out = StringIO()

    error = await refused(manager, "savepoint", job_id, "--timeout", "0", stdout=out)
    assert out.getvalue().strip() == f"The savepoint of job {job_id} is in progress."

    assert error.returncode == 3
    assert "is still in progress after 0 s and continues" in str(error)
    await eventually(lambda: is_in_progress(manager, job_id))


async def test_ctrl_c_prints_that_the_operation_continues(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await manager.submit_running()
    (await manager.driver(1)).acknowledges = False
    stderr = StringIO()

    callers = set()
    sleep = time.sleep

    def interrupted(seconds: float) -> None:
        if threading.get_ident() in callers:
            raise KeyboardInterrupt
        sleep(seconds)  # these threads belong to Spark's session, which other tests of this process use

    monkeypatch.setattr("time.sleep", interrupted)

    def call() -> bool:
        callers.add(threading.get_ident())
        try:
            call_command("job", "savepoint", job_id, "-m", manager.address, stdout=StringIO(), stderr=stderr)
        except KeyboardInterrupt:
            return True
        return False

    assert await asyncio.to_thread(call)
    assert stderr.getvalue().strip() == f"Interrupted. The savepoint continues; see: manage.py job show {job_id}"
    await eventually(lambda: is_in_progress(manager, job_id))


def write_log(manager: RunningJobManager, job_id: str, attempt: int, text: str) -> None:
    """Add to the log of an attempt, as its driver does."""
    log = manager.settings.state_directory / "jobs" / job_id / f"attempt-{attempt}" / "driver.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("a") as file:
        file.write(text)


async def test_logs_of_an_attempt_and_its_last_lines(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    write_log(manager, job_id, 1, "one\ntwo\nthree\n")
    write_log(manager, job_id, 2, "four\nfive\n")

    assert await run(manager, "logs", job_id) == "four\nfive\n"
    assert await run(manager, "logs", job_id, "--attempt", "1") == "one\ntwo\nthree\n"
    assert await run(manager, "logs", job_id, "--attempt", "1", "-n", "2") == "two\nthree\n"
    assert await run_json(manager, "logs", job_id) == {"job": job_id, "attempt": 2, "lines": ["four", "five"]}
    unknown = await refused(manager, "logs", job_id, "--attempt", "7")
    assert (unknown.returncode, str(unknown).endswith("has logs of attempts 1, 2")) == (2, True)
    assert "--follow: not allowed with --attempt" in str(await refused(manager, "logs", job_id, "-f", "--attempt", "1"))


@pytest.mark.parametrize(("options", "first"), [((), ["one", "two"]), (("-n", "1"), ["two"])])
async def test_logs_are_followed_over_restarts_until_the_job_has_ended(
    manager: RunningJobManager, options: tuple[str, ...], first: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_logs, "_POLL_S", 0.05)
    job_id = await manager.submit_running()
    write_log(manager, job_id, 1, "one\ntwo\n")
    out = StringIO()
    arguments = ("job", "logs", job_id, "-f", "--json", *options, "-m", manager.address)
    following = asyncio.create_task(asyncio.to_thread(call_command, *arguments, stdout=out))

    def shown() -> list[tuple[int, str]]:
        return [(each["attempt"], each["line"]) for each in map(json.loads, out.getvalue().splitlines())]

    lines = [(1, line) for line in first]
    await eventually(lambda: shown() == lines)
    write_log(manager, job_id, 1, "three\nhalf a l")
    lines.append((1, "three"))
    await eventually(lambda: shown() == lines)
    write_log(manager, job_id, 1, "ine\n")
    lines.append((1, "half a line"))
    await eventually(lambda: shown() == lines)

    write_log(manager, job_id, 1, "its end")  # written together with the next attempt's log, before the next read
    write_log(manager, job_id, 2, "four\n")
    write_log(manager, job_id, 3, "five\n")
    lines += [(1, "its end"), (2, "four"), (3, "five")]
    await eventually(lambda: shown() == lines)
    write_log(manager, job_id, 3, "the last line, without an end")
    await manager.cancel(job_id)
    await following
    assert shown() == [*lines, (3, "the last line, without an end")]


async def test_unknown_jobs_and_job_managers_are_distinguished(manager: RunningJobManager) -> None:
    unknown = await refused(manager, "cancel", "nobody")
    assert (unknown.returncode, "'nobody'" in str(unknown)) == (2, True)

    with pytest.raises(CommandError, match=r"No job manager answers at http://127\.0\.0\.1:9") as error:
        call_command("job", "list", "-m", "http://127.0.0.1:9")
    assert error.value.returncode == 1


def job(number: int, name: str, state: str = "RUNNING") -> dict[str, Any]:
    return {"jid": f"{number:032x}"[::-1], "name": name, "state": state, "start-time": number}


JOBS = [job(1, "a"), job(2, "b", "CANCELED"), job(3, "b"), job(4, "c", "FAILED"), job(5, "c", "FINISHED"), job(17, "d")]


@pytest.mark.parametrize(
    ("text", "number"), [(JOBS[1]["jid"], 2), (JOBS[1]["jid"].upper(), 2), ("2", 2), ("b", 3), ("c", 5), ("a", 1)]
)
def test_a_job_is_found_by_id_prefix_or_name(text: str, number: int) -> None:
    assert find_job(JOBS, text)["start-time"] == number


@pytest.mark.parametrize(("text", "message"), [("1", "not unique"), ("d2", "neither"), ("", "neither")])
def test_a_text_that_names_no_single_job_is_refused(text: str, message: str) -> None:
    with pytest.raises(JobNotFound, match=message):
        find_job(JOBS, text)
    with pytest.raises(JobNotFound, match="not unique"):
        find_job([job(1, "a"), job(2, "a")], "a")


def test_an_operation_waits_for_an_unreachable_job_manager() -> None:
    away = [JobManagerUnreachable("gone"), RequestRefused(503, "an election is going on")]

    class Client(JobManagerClient):
        def get(self, path: str) -> dict[str, Any]:
            if away:
                raise away.pop()
            return {"status": {"id": "COMPLETED"}, "operation": {"location": "file:/s"}}

    operations = JobOperations(Client("http://127.0.0.1:9"), lambda: 0, lambda seconds: None, 10)
    assert operations.savepoint("0" * 32, "1" * 32) == "file:/s"

    forgotten = iter(range(100))
    late = JobOperations(Client("http://127.0.0.1:9"), lambda: next(forgotten), lambda seconds: None, 10)
    away += [JobManagerUnreachable("gone")] * 50
    with pytest.raises(StillInProgress):
        late.savepoint("0" * 32, "1" * 32)
