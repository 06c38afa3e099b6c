"""Every command on a real Flink: its effect, its result, and its error."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection
from monitoring.engine.errors import NotFound, NotReady, Refused, Unreachable
from monitoring.engine.operations import Done, Failed, Forgotten, InProgress, Operation
from tests.monitoring.flink.cluster import FlinkCluster
from tests.monitoring.flink.conftest import LONG, SELDOM, STORE_S
from tests.monitoring.flink.jobs import CountJobs
from tests.tcp_proxy import TcpProxy
from tests.waiting import eventually

NOBODY = "0" * 31 + "9"
LIMIT_S = 60.0
HISTORY_AGE_S = 3.2
T = TypeVar("T")


def new_id() -> str:
    return uuid.uuid4().hex


async def follow(ask: Callable[[], Awaitable[Operation[T]]], limit_s: float, every_s: float = 0.5) -> Operation[T]:
    """Poll until the operation has ended or is forgotten. Return InProgress if that takes longer than `limit_s`.

    After Unreachable and NotReady the next poll follows. If the last poll within `limit_s` fails, its error is raised.
    """
    until = asyncio.get_running_loop().time() + limit_s
    while True:
        over = asyncio.get_running_loop().time() + every_s > until
        try:
            answer = await ask()
        except (Unreachable, NotReady):
            if over:
                raise
        else:
            if over or not isinstance(answer, InProgress):
                return answer
        await asyncio.sleep(every_s)


async def saved(client: FlinkClient, job_id: str, trigger: str) -> Operation[str]:
    return await follow(lambda: client.savepoint_status(job_id, trigger), LIMIT_S)


async def took(client: FlinkClient, job_id: str, trigger: str) -> Operation[int]:
    return await follow(lambda: client.checkpoint_status(job_id, trigger), LIMIT_S)


async def disposed(client: FlinkClient, path: str) -> Operation[None]:
    trigger = await client.dispose_savepoint(path)
    return await follow(lambda: client.disposal_status(trigger), LIMIT_S)


def files(path: str) -> list[Path]:
    return list(Path(path.removeprefix("file:")).iterdir())


def exists(path: str) -> bool:
    return Path(path.removeprefix("file:")).exists()


async def savepoints_of(client: FlinkClient, job_id: str) -> list[str]:
    """Return the savepoints in the history, after waiting because Flink caches it for up to three seconds."""
    await asyncio.sleep(HISTORY_AGE_S)
    history = (await client.checkpoints(job_id)).history
    return [entry.external_path for entry in history if entry.is_savepoint]


def test_savepoint_checkpoint_and_disposal(flink: FlinkCluster, jobs: CountJobs) -> None:
    job_id = jobs.start()

    async def act(client: FlinkClient) -> None:
        trigger = new_id()
        assert await client.trigger_savepoint(job_id, trigger) == trigger
        done = await saved(client, job_id, trigger)
        assert isinstance(done, Done), done
        assert "_metadata" in [each.name for each in files(done.result)]  # only large state has other files

        trigger = new_id()
        assert await client.trigger_checkpoint(job_id, trigger, full=True) == trigger
        taken = await took(client, job_id, trigger)
        assert isinstance(taken, Done), taken
        await asyncio.sleep(HISTORY_AGE_S)
        assert (await client.checkpoint_details(job_id, taken.result)).status == "COMPLETED"

        assert await disposed(client, done.result) == Done(None)
        assert not exists(done.result)
        gone = await disposed(client, done.result)
        assert isinstance(gone, Failed)
        assert "Cannot find checkpoint or savepoint file/directory" in gone.reason

    jobs.ask(act)


@pytest.mark.parametrize("drain", [False, pytest.param(True, marks=LONG)])
def test_stop_with_savepoint(flink: FlinkCluster, jobs: CountJobs, tmp_path: Path, drain: bool) -> None:
    job_id = jobs.start()

    async def act(client: FlinkClient) -> Operation[str]:
        trigger = new_id()
        await client.stop_with_savepoint(job_id, trigger, drain=drain, target_directory=f"file:{tmp_path}/sp")
        return await saved(client, job_id, trigger)

    done = jobs.ask(act)
    assert isinstance(done, Done), done
    assert done.result.startswith(f"file:{tmp_path}/sp/savepoint-{job_id[:6]}-")
    jobs.wait(job_id, "FINISHED")


@LONG
def test_cancel(jobs: CountJobs) -> None:
    job_id = jobs.start()
    jobs.ask(lambda client: client.cancel(job_id))
    jobs.wait(job_id, "CANCELED")
    jobs.ask(lambda client: client.cancel(job_id))


@LONG
def test_a_job_under_an_id_that_was_used_is_refused(jobs: CountJobs) -> None:
    job_id = jobs.start()

    async def again(client: FlinkClient) -> None:
        with pytest.raises(Refused) as refused:
            await jobs.run(client, "again", job_id=job_id)
        assert "already" in str(refused.value)

    jobs.ask(again)


@LONG
def test_a_lost_answer_never_causes_a_second_savepoint(flink: FlinkCluster, jobs: CountJobs) -> None:
    job_id, trigger = jobs.start(), new_id()
    proxy = TcpProxy(flink.url.removeprefix("http://"))
    proxy.swallow_replies()

    async def act() -> None:
        cut = Connection(f"http://{proxy.address}")
        async with FlinkClient(cut, command_limit_s=1) as deaf, FlinkClient(Connection(flink.url)) as client:
            with pytest.raises(Unreachable):
                await deaf.trigger_savepoint(job_id, trigger)
            done = await saved(client, job_id, trigger)
            assert isinstance(done, Done), done
            assert await client.trigger_savepoint(job_id, trigger) == trigger
            assert await saved(client, job_id, trigger) == done
            assert await savepoints_of(client, job_id) == [done.result]

    try:
        asyncio.run(act())
    finally:
        proxy.close()


@LONG
def test_a_forgotten_request_is_reported_as_forgotten(jobs: CountJobs) -> None:
    job_id, trigger = jobs.start(configuration=SELDOM), new_id()

    async def act(client: FlinkClient) -> None:
        await client.trigger_savepoint(job_id, trigger)
        done = await saved(client, job_id, trigger)
        assert isinstance(done, Done), done
        status = await follow(lambda: _until_forgotten(client, job_id, trigger), STORE_S * 10)
        assert status == Forgotten()
        assert await savepoints_of(client, job_id) == [done.result]

    jobs.ask(act)


async def _until_forgotten(client: FlinkClient, job_id: str, trigger: str) -> Operation[str]:
    status = await client.savepoint_status(job_id, trigger)
    return status if isinstance(status, Forgotten) else InProgress()


MISSING = "Cannot find checkpoint or savepoint file/directory 'file:{tmp}/missing' on file system 'file'."


@LONG
def test_operations_on_a_missing_job_fail_with_that_reason(jobs: CountJobs) -> None:
    """Flink accepts every operation, and reports only in its status that the job is missing or has ended."""
    ended = jobs.start("ended")
    jobs.ask(lambda client: client.cancel(ended))
    jobs.wait(ended, "CANCELED")

    async def act(client: FlinkClient) -> None:
        for job_id in (NOBODY, ended):
            why = Failed(f"Could not find Flink job ({job_id})")
            assert await saved(client, job_id, await client.trigger_savepoint(job_id, new_id())) == why
            assert await saved(client, job_id, await client.stop_with_savepoint(job_id, new_id())) == why
            assert await took(client, job_id, await client.trigger_checkpoint(job_id, new_id())) == why
        with pytest.raises(NotFound, match="Could not find Flink job"):
            await client.cancel(NOBODY)

    jobs.ask(act)


@LONG
def test_a_finished_job_is_not_canceled(jobs: CountJobs) -> None:
    job_id = jobs.start()

    async def act(client: FlinkClient) -> None:
        assert isinstance(await saved(client, job_id, await client.stop_with_savepoint(job_id, new_id())), Done)

    jobs.ask(act)
    jobs.wait(job_id, "FINISHED")
    with pytest.raises(Refused, match="already reached another terminal state") as refused:
        jobs.ask(lambda client: client.cancel(job_id))
    assert refused.value.status == 409


@LONG
def test_an_invalid_directory_is_reported_and_the_job_continues(
    flink: FlinkCluster, jobs: CountJobs, tmp_path: Path
) -> None:
    job_id = jobs.start()
    (tmp_path / "file").write_text("no directory")

    async def act(client: FlinkClient) -> None:
        for begin in (client.trigger_savepoint, client.stop_with_savepoint):
            for path, why in (
                (f"file:{tmp_path}/file", f"FileAlreadyExistsException: {tmp_path}/file"),
                ("nosuch://x/y", "Hadoop is not in the classpath/dependencies."),
            ):
                trigger = await begin(job_id, new_id(), target_directory=path)
                assert await saved(client, job_id, trigger) == Failed(why)
        missing = await disposed(client, f"file:{tmp_path}/missing")
        assert missing == Failed(MISSING.format(tmp=tmp_path))
        damaged = await disposed(client, f"file:{tmp_path}/file")
        assert isinstance(damaged, Failed)
        assert "not a savepoint at all" in damaged.reason

    jobs.ask(act)
    before = flink.completed(job_id)
    eventually("checkpoints go on", lambda: flink.completed(job_id) > before)
    assert flink.state(job_id) == "RUNNING"


@LONG
def test_a_savepoint_of_a_restarting_job_is_refused(jobs: CountJobs) -> None:
    job_id = jobs.start(configuration={"restart-strategy.fixed-delay.delay": "1 h"})
    jobs.turn("fail", on=True)
    jobs.wait(job_id, "RESTARTING")

    async def act(client: FlinkClient) -> None:
        for begin in (client.trigger_savepoint, client.stop_with_savepoint):
            failed = await saved(client, job_id, await begin(job_id, new_id()))
            assert isinstance(failed, Failed)
            assert "Not all required tasks are currently running" in failed.reason

    jobs.ask(act)


@LONG
def test_a_savepoint_while_another_stops_the_job(flink: FlinkCluster, jobs: CountJobs) -> None:
    """In Flink one barrier may overtake the other, so that either savepoint may fail. Both operations have a result.

    Therefore Waymark runs one savepoint or stop at a time.
    """
    job_id = jobs.start(configuration={"execution.checkpointing.timeout": "3 s"})
    jobs.turn("slow", on=True)

    async def act(client: FlinkClient) -> tuple[Operation[str], Operation[str]]:
        stop = await client.stop_with_savepoint(job_id, new_id())
        save = await client.trigger_savepoint(job_id, new_id())
        assert await client.savepoint_status(job_id, stop) == InProgress()
        jobs.turn("slow", on=False)
        # Wait for both at the same time: Flink keeps results only briefly, and one may end seconds before the other.
        return await asyncio.gather(saved(client, job_id, stop), saved(client, job_id, save))

    stopped, other = jobs.ask(act)
    assert isinstance(other, Done) or (isinstance(other, Failed) and other.reason)
    if isinstance(stopped, Done):
        jobs.wait(job_id, "FINISHED")
    else:
        assert isinstance(stopped, Failed)
        before = flink.completed(job_id)
        eventually("the job continues", lambda: flink.completed(job_id) > before)


def test_programs_that_cannot_run_report_the_cause(jobs: CountJobs, tmp_path: Path) -> None:
    async def act(client: FlinkClient) -> None:
        for call, why in (
            (client.run_jar("none.jar", job_id=new_id()), "none.jar does not exist"),
            (client.delete_jar("none.jar"), "File none.jar does not exist"),
            (client.upload_jar("x.txt", b"x"), "Only Jar files are allowed."),
            (jobs.run(client, "x", entry_class="Nobody"), "ClassNotFoundException: Nobody"),
            (jobs.run(client, "x", savepoint=f"file:{tmp_path}/missing"), MISSING.format(tmp=tmp_path)),
            (client.cancel("zz"), 'Cannot resolve path parameter (jobid) from value "zz"'),
        ):
            with pytest.raises(Refused) as refused:
                await call
            assert why in str(refused.value)

    jobs.ask(act)
