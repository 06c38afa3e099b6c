# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""A job waits for unavailable storage and loses no state. Damaged or deleted files are handled differently."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointing import main as jobmanager
from checkpointing.jobs import attempt_starter, job_recovery
from checkpointing.jobs.attempts import AttemptRecord, JobDirectory
from checkpointing.model.messages import FinishCause
from checkpointing.storage import FileCheckpointStorage
from checkpointing.storage.errors import AccessDenied, StorageUnreachable
from checkpointing.storage.locations import name
from checkpointing.storage.reachability import read_reachable
from tests.checkpointing.jobs.cluster import Cluster, leads
from tests.checkpointing.jobs.fake_driver import FakeDriver
from tests.checkpointing.jobs.hard_mount import hard_mount
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually, running_job_manager
from tests.storage_servers import StorageServer
from tests.tcp_proxy import TcpProxy

RETRIES = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "50 ms",
           "restart-strategy.fixed-delay.attempts": "1000000"}  # fmt: skip
RETAINED = {"execution.checkpointing.num-retained": "3",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}  # fmt: skip
LEAVE = {"WAYMARK_DRIVERS_ON_SHUTDOWN": "leave"}
MANY = 8
"""More attempts than an earlier version of the recovery made before it gave up."""

zookeeper = pytest.mark.zookeeper


class Away:
    """A mount point whose file system is unavailable, so that it is empty or missing."""

    def __init__(self, directory: Path, mount_point: str) -> None:
        self._directory = directory
        self._elsewhere = directory.rename(directory.with_name("elsewhere"))
        if mount_point == "empty":
            directory.mkdir()

    def comes_back(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._directory.rmdir()
        self._elsewhere.rename(self._directory)


async def exceptions(manager: RunningJobManager, job_id: str) -> list[dict[str, Any]]:
    """Return the exceptions of the job, newest first."""
    return list((await manager.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"])


async def has_exception(manager: RunningJobManager, job_id: str, kind: str, message: str) -> bool:
    return any(
        entry["exceptionName"] == kind and message in entry["stacktrace"] for entry in await exceptions(manager, job_id)
    )


# --- at a restart ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mount_point", ["gone", "empty"])
async def test_a_restart_waits_for_its_storage_and_reports_it(manager: RunningJobManager, mount_point: str) -> None:
    job_id = await manager.submit_running(RETRIES | RETAINED)
    assert [await manager.checkpoint(job_id) for _ in range(2)] == [1, 2]
    away = Away(Path(manager.settings.checkpoint_directory), mount_point)

    await (await manager.driver(1)).report_failure("crash")
    await eventually(lambda: has_exception(manager, job_id, "StorageUnreachable", "checkpoint 2 cannot be read now"))
    assert await manager.status(job_id) in ("CREATED", "FAILING", "RESTARTING")
    assert len(manager.launcher.drivers) == 1
    away.comes_back()

    restore = (await manager.driver(2)).spec.restore
    assert restore is not None
    assert restore.checkpoint_id == 2


@pytest.mark.parametrize("error", [StorageUnreachable, AccessDenied, OSError])
async def test_no_older_checkpoint_is_preferred_to_one_that_cannot_be_read_now(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    failures: list[str] = []

    def read(directory: str, how: Callable[[str], Any]) -> Any:
        if name(directory) == "chk-3" and len(failures) < 3:
            failures.append(directory)
            raise error(f"{directory}: not now")
        return read_reachable(directory, how)

    job_id = await manager.submit_running(RETRIES | RETAINED)
    assert [await manager.checkpoint(job_id) for _ in range(3)] == [1, 2, 3]
    monkeypatch.setattr(attempt_starter, "read_reachable", read)

    await (await manager.driver(1)).report_failure("crash")

    restore = (await manager.driver(2)).spec.restore
    assert restore is not None
    assert restore.checkpoint_id == 3
    assert len(failures) == 3
    assert await has_exception(manager, job_id, error.__name__, "checkpoint 3 cannot be read now")


async def test_a_checkpoint_that_was_deleted_is_reported_and_an_older_one_is_used(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(RETRIES | RETAINED)
    assert [await manager.checkpoint(job_id) for _ in range(2)] == [1, 2]
    (Path(manager.settings.checkpoint_directory, job_id, "chk-2") / "_metadata").unlink()

    await (await manager.driver(1)).report_failure("crash")

    restore = (await manager.driver(2)).spec.restore
    assert restore is not None
    assert restore.checkpoint_id == 1
    assert await has_exception(manager, job_id, "SnapshotUnusable", "checkpoint 2 cannot be restored")


async def test_a_restart_strategy_without_attempts_left_keeps_the_checkpoints(manager: RunningJobManager) -> None:
    """They are kept although the job's retention deletes the checkpoints of a failed job."""
    once = RETRIES | {"restart-strategy.fixed-delay.attempts": "3"}
    job_id = await manager.submit_running(
        once | {"execution.checkpointing.externalized-checkpoint-retention": "NO_EXTERNALIZED_CHECKPOINTS"}
    )
    await manager.checkpoint(job_id)
    away = Away(Path(manager.settings.checkpoint_directory), "gone")

    await (await manager.driver(1)).report_failure("crash")
    await manager.until(job_id, "FAILED")
    away.comes_back()

    assert await has_exception(manager, job_id, "StorageUnreachable", "checkpoint 1 cannot be read now")
    cleaned_up = manager.settings.state_directory / "ha" / "job-result-store" / f"{job_id}.json"
    await eventually(cleaned_up.exists)
    assert (Path(manager.settings.checkpoint_directory) / job_id / "chk-1" / "_metadata").exists()


async def test_a_job_that_waits_for_its_storage_can_be_canceled(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(RETRIES | RETAINED)
    await manager.checkpoint(job_id)
    Away(Path(manager.settings.checkpoint_directory), "gone")
    await (await manager.driver(1)).report_failure("crash")
    await eventually(lambda: has_exception(manager, job_id, "StorageUnreachable", "checkpoint 1 cannot be read now"))

    await manager.cancel(job_id)

    await manager.until(job_id, "CANCELED")


async def test_a_restart_waits_for_the_directory_of_the_job(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(RETRIES | RETAINED)
    assert await manager.checkpoint(job_id) == 1
    jobs = manager.settings.state_directory / "jobs"
    away = Away(jobs, "empty")

    await (await manager.driver(1)).report_failure("crash")
    await eventually(
        lambda: has_exception(manager, job_id, "BatchNumbersNotReserved", "its storage may not be mounted")
    )
    assert list(jobs.iterdir()) == [], "nothing is written beside the storage"
    away.comes_back()

    restore = (await manager.driver(2)).spec.restore
    assert restore is not None
    assert restore.checkpoint_id == 1


@pytest.mark.parametrize("operation", ["program", "remove_old_attempts", "attempt_directory"])
async def test_an_error_of_the_jobs_directory_fails_the_attempt_and_not_the_job(
    manager: RunningJobManager, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    job_id = await manager.submit_running(RETRIES | RETAINED)
    original, failures = getattr(JobDirectory, operation), []

    def fail_once(*args: Any, **kwargs: Any) -> Any:
        if not failures:
            failures.append(operation)
            raise OSError(errno.ESTALE, "Stale file handle")
        return original(*args, **kwargs)

    monkeypatch.setattr(JobDirectory, operation, fail_once)
    await (await manager.driver(1)).report_failure("crash")

    await eventually(lambda: len(manager.launcher.drivers) == 2)
    await manager.until(job_id, "RUNNING")
    assert await has_exception(manager, job_id, "OSError", "The attempt could not be started: [Errno 116]")


@pytest.fixture
def s3_proxy(
    s3: StorageServer, admitted: Callable[[StorageServer], None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[TcpProxy]:
    """Yield a proxy through which this process reaches the object store, without retries."""
    admitted(s3)
    proxy = TcpProxy(s3.environment["AWS_ENDPOINT_URL"].removeprefix("http://"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{proxy.address}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    # File systems that this process opened before still connect to the server directly, so open new ones.
    monkeypatch.setattr("checkpointing.storage.fsspec_files._opened", {})
    yield proxy
    proxy.close()


async def test_a_restart_waits_for_an_object_store(tmp_path: Path, s3: StorageServer, s3_proxy: TcpProxy) -> None:
    where = {"execution.checkpointing.dir": f"{s3.root}/away"}
    async with running_job_manager(tmp_path, WAYMARK_SAVEPOINT_ROOTS=s3.root) as manager:
        job_id = await manager.submit_running(RETRIES | RETAINED | where)
        assert [await manager.checkpoint(job_id) for _ in range(2)] == [1, 2]
        s3_proxy.cut()

        await (await manager.driver(1)).report_failure("crash")
        await eventually(
            lambda: has_exception(manager, job_id, "StorageUnreachable", "checkpoint 2 cannot be read now")
        )
        s3_proxy.heal()

        restore = (await manager.driver(2)).spec.restore
        assert restore is not None
        assert restore.checkpoint_id == 2


# --- at a fail-over -------------------------------------------------------------------------------------------------


class Reads:
    """The function with which job managers read checkpoints. It fails while `away`, and counts its failures."""

    def __init__(self) -> None:
        self.away = False
        self.failed = 0

    def __call__(self, location: str) -> Any:
        if self.away:
            self.failed += 1
            raise StorageUnreachable(f"{location}: the storage cannot be reached")
        return read_reachable(location)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Return the reads of a recovery that retries at once."""
    monkeypatch.setattr(job_recovery, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(job_recovery, "_LONGEST_PAUSE_S", 0.01)
    reads = Reads()
    monkeypatch.setattr(jobmanager, "read_reachable", reads)
    return reads


async def left_behind(cluster: Cluster, **settings: str) -> tuple[str, FakeDriver]:
    """Run a job with two checkpoints whose job manager ends while its driver lives. Return its ID and driver."""
    async with cluster.job_manager(**LEAVE) as first:
        await leads(first)
        job_id = await first.submit_running(RETRIES | RETAINED | settings)
        assert [await first.checkpoint(job_id) for _ in range(2)] == [1, 2]
    return job_id, cluster.launcher.drivers[0]


@zookeeper
@pytest.mark.parametrize("mount_point", ["gone", "empty"])
async def test_a_live_driver_is_adopted_while_the_storage_is_unreachable(cluster: Cluster, mount_point: str) -> None:
    job_id, driver = await left_behind(cluster)
    away = Away(cluster.checkpoints, mount_point)
    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await eventually(lambda: driver.registrations >= 2)
        await eventually(
            lambda: has_exception(second, job_id, "StorageUnreachable", "stored checkpoints cannot be read now")
        )
        assert await second.status(job_id) == "RECONCILING"
        attempts = (await second.get(f"/jobs/{job_id}"))["attempts"]
        assert [attempt["attempt"] for attempt in attempts] == [1]
        stopped = await second.savepoint(job_id, "stop")
        assert "The job is RECONCILING, not RUNNING" in str(stopped["failure-cause"])
        away.comes_back()

        await second.until(job_id, "RUNNING")
        assert await second.checkpoint(job_id) == 3
        assert driver.refusals == []
        assert len(cluster.launcher.drivers) == 1


@zookeeper
@pytest.mark.parametrize(
    ("cause", "status", "attempts"), [(FinishCause.FOR_RESCALE, "RUNNING", 2), (FinishCause.BY_ITSELF, "FINISHED", 1)]
)
async def test_driver_end_is_handled_once_the_checkpoints_are_read(
    cluster: Cluster, reads: Reads, cause: FinishCause, status: str, attempts: int
) -> None:
    job_id, driver = await left_behind(cluster)
    reads.away = True
    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await eventually(lambda: driver.registrations >= 2)
        await driver.finish(cause)
        await eventually(lambda: driver.process.exited.done() and reads.failed > MANY)
        assert await second.status(job_id) == "RECONCILING"
        reads.away = False

        await second.until(job_id, status)
        assert len(cluster.launcher.drivers) == attempts
        assert (Path(second.settings.checkpoint_directory) / job_id / "chk-2" / "_metadata").exists()


@zookeeper
async def test_unavailable_storage_is_awaited_without_limit(cluster: Cluster, reads: Reads) -> None:
    job_id, driver = await left_behind(cluster)
    driver.kill(-9)
    reads.away = True
    async with cluster.job_manager() as second:
        await leads(second)
        await eventually(lambda: reads.failed > MANY)
        text = [entry for entry in await exceptions(second, job_id) if entry["exceptionName"] == "StorageUnreachable"]
        assert len(text) == 1, "an outage is said once"
        reads.away = False

        await second.until(job_id, "RUNNING")
        restore = cluster.launcher.specs[-1].restore
        assert restore is not None
        assert restore.checkpoint_id == 2


@zookeeper
async def test_unreachable_checkpoint_is_awaited_instead_of_using_an_older_one(cluster: Cluster, reads: Reads) -> None:
    job_id, driver = await left_behind(cluster)
    driver.kill(-9)
    newest = cluster.checkpoints / job_id / "chk-2"
    newest.rename(newest.with_name("away"))
    newest.symlink_to(newest)  # a link to itself: reading fails, but not as for a missing directory
    async with cluster.job_manager() as second:
        await leads(second)
        await eventually(lambda: has_exception(second, job_id, "OSError", "stored checkpoints cannot be read now"))
        link = newest.with_name("link")
        link.symlink_to("away")
        link.rename(newest)  # at once: without `chk-2` for a moment, the older checkpoint would be the newest

        await second.until(job_id, "RUNNING")
        restore = cluster.launcher.specs[-1].restore
        assert restore is not None
        assert restore.checkpoint_id == 2


@zookeeper
async def test_checkpoint_missing_in_the_store_is_awaited(
    cluster: Cluster, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a complete checkpoint that is not in the store would be lost, and its ID assigned again."""
    job_id, driver = await left_behind(cluster)
    driver.kill(-9)
    found, failures = FileCheckpointStorage.found, []

    def fail_at_first(storage: FileCheckpointStorage, known: Any) -> Any:
        if len(failures) < MANY:
            failures.append(known)
            raise StorageUnreachable("the storage cannot be reached")
        return found(storage, known)

    monkeypatch.setattr(FileCheckpointStorage, "found", fail_at_first)
    async with cluster.job_manager() as second:
        await leads(second)
        await second.until(job_id, "RUNNING")
        assert len(failures) == MANY


@zookeeper
async def test_a_new_leader_reports_hanging_storage_and_adopts_the_driver(cluster: Cluster, tmp_path: Path) -> None:
    limits = {"WAYMARK_STORAGE_TIMEOUT": "5", "WAYMARK_SAVEPOINT_ROOTS": str(tmp_path / "mount")}
    with hard_mount(tmp_path / "mount") as mount:
        async with cluster.job_manager(**LEAVE, **limits) as first:
            await leads(first)
            job_id = await first.submit_running(RETAINED | {"execution.checkpointing.dir": str(mount.path)})
            assert await first.checkpoint(job_id) == 1
        mount.hang()
        async with cluster.job_manager(**limits) as second:
            cluster.drivers_find(second)
            await leads(second)
            await eventually(lambda: cluster.launcher.drivers[0].registrations >= 2)
            await eventually(
                lambda: has_exception(second, job_id, "StorageSilent", "the storage has not answered for 5 s")
            )
            assert await second.status(job_id) == "RECONCILING"
            mount.answer()

            await second.until(job_id, "RUNNING")
            assert await second.checkpoint(job_id) == 2
            assert len(cluster.launcher.drivers) == 1


@zookeeper
async def test_a_job_whose_checkpoints_are_damaged_fails_and_keeps_them(cluster: Cluster) -> None:
    job_id, driver = await left_behind(cluster)
    driver.kill(-9)
    directory = cluster.checkpoints / job_id
    for metadata in directory.glob("chk-*/_metadata"):
        metadata.write_text("damaged")
    async with cluster.job_manager() as second:
        await leads(second)
        await second.until(job_id, "FAILED")
        assert await has_exception(second, job_id, "CheckpointsUnreadable", "Its stored checkpoints cannot be read")
        assert sorted(path.name for path in directory.glob("chk-*")) == ["chk-1", "chk-2"]


@zookeeper
async def test_the_checkpoints_of_a_job_canceled_while_waiting_are_removed_once_readable(
    cluster: Cluster, reads: Reads
) -> None:
    delete = {"execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION"}
    job_id, driver = await left_behind(cluster, **delete)
    reads.away = True
    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await eventually(lambda: reads.failed > 0)

        await second.cancel(job_id)
        await second.until(job_id, "CANCELED")

        assert driver.process.exited.done()
        directory = Path(second.settings.checkpoint_directory, job_id)
        assert (directory / "chk-2" / "_metadata").exists()
        reads.away = False
        await eventually(lambda: not directory.exists())


@zookeeper
async def test_a_job_manager_that_waits_can_give_the_job_up_to_the_next_one(cluster: Cluster, reads: Reads) -> None:
    job_id, driver = await left_behind(cluster)
    reads.away = True
    async with cluster.job_manager(**LEAVE) as second:
        cluster.drivers_find(second)
        await leads(second)
        await eventually(lambda: reads.failed > 0)
    reads.away = False
    async with cluster.job_manager() as third:
        cluster.drivers_find(third)
        await leads(third)
        await third.until(job_id, "RUNNING")
        assert await third.checkpoint(job_id) == 3
        assert driver.refusals == []
        assert len(cluster.launcher.drivers) == 1


@zookeeper
async def test_an_answer_to_the_former_leader_removes_nothing_while_the_checkpoints_are_not_read(
    cluster: Cluster, reads: Reads
) -> None:
    cluster.launcher.shared_files = ("needed",)
    job_id, driver = await left_behind(cluster)
    reads.away = True
    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await eventually(lambda: driver.registrations >= 2 and reads.failed > 0)
        shared = Path(second.settings.checkpoint_directory, job_id, "shared", "needed")
        late = driver.triggers[-1]
        await driver._checkpoint(type(late)(**{**vars(late), "checkpoint_id": 3}))
        driver.shared_files = ()  # otherwise the next checkpoint would upload it again
        reads.away = False
        await second.until(job_id, "RUNNING")
        assert await second.checkpoint(job_id) == 3
        assert shared.exists()


@zookeeper
@pytest.mark.parametrize("appears", ["later", "after the record was not found"])
async def test_a_job_without_its_directory_is_not_treated_as_a_new_one(
    cluster: Cluster, reads: Reads, appears: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's files in the state directory may be on another file system, which is mounted last."""
    job_id, driver = await left_behind(cluster)
    jobs = cluster.directory / "state" / "jobs"
    away = jobs.rename(jobs.with_name("away"))

    def mount() -> None:
        if jobs.exists():
            jobs.rmdir()
        away.rename(jobs)

    read_record = JobDirectory.read_record

    def read_before_the_mount(directory: JobDirectory) -> AttemptRecord | None:
        record = read_record(directory)
        if record is None and away.exists():
            mount()
        return record

    if appears != "later":
        monkeypatch.setattr(JobDirectory, "read_record", read_before_the_mount)
    async with cluster.job_manager() as second:
        cluster.drivers_find(second)
        await leads(second)
        await eventually(
            lambda: has_exception(second, job_id, "StorageUnreachable", "record of its attempts cannot be read")
        )
        await eventually(lambda: driver.waits > 1)
        mount()

        await second.until(job_id, "RUNNING")
        assert await second.checkpoint(job_id) == 3
        assert driver.refusals == []
        assert len(cluster.launcher.drivers) == 1
