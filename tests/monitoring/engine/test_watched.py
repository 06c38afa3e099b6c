"""The transport for a directory: Flink's paths are answered from files, and every command is refused with a reason."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

from checkpointing.clock import ManualClock
from checkpointing.storage.errors import AccessDenied
from checkpointing.watched.scanning import PASS_EVERY_MS
from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection, connection_of
from monitoring.engine.errors import NotFound, NotReady, Refused, RequestNotSent, RootUnreadable, Unreachable
from monitoring.engine.examination import Problem, examine
from monitoring.engine.operations import Done, Failed, Forgotten, InProgress
from monitoring.engine.probe import Found
from monitoring.engine.storage_calls import HANGING
from monitoring.engine.watched import LISTINGS, WatchedTransport
from monitoring.models import Cluster, Discovery, LocationCopy
from monitoring.reasons.columns import columns
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.refusals import RefusalReason
from tests.checkpointing.watched.locations import START_MS, CountedFiles, Location
from tests.waiting import eventually

QUERY = "0" * 32


class Watch:
    def __init__(self, root: Path, files: CountedFiles | None = None) -> None:
        self.clock = ManualClock(START_MS + 60_000)
        self.client = FlinkClient(Connection(str(root), is_directory=True), read_limit_s=60)
        self.client._transport = self.client.watched = WatchedTransport(
            Connection(str(root), is_directory=True), self.clock, files or CountedFiles()
        )

    async def jobs(self) -> dict[str, str]:
        return {job.name: job.state for job in await self.client.jobs_overview()}


@pytest.fixture(autouse=True)
def root(tmp_path: Path, settings: Settings) -> Path:
    settings.STATE_ROOTS = (str(tmp_path),)
    return tmp_path


async def test_each_query_is_a_job_and_each_batch_a_checkpoint(root: Path) -> None:
    location = Location(root / "team/orders").run(0, 2)
    location.begin(3, watermark=START_MS, source={"topic": {"0": 12}})
    watch = Watch(root)
    (job,) = await watch.client.jobs_overview()
    assert (job.id, job.name, job.state) == (location.id, "team/orders", "RECONCILING")
    checkpoints = await watch.client.checkpoints(job.id)
    assert [(each.id, each.status) for each in checkpoints.history] == [
        (3, "IN_PROGRESS"),
        *((number, "COMPLETED") for number in (2, 1, 0)),
    ]
    assert (checkpoints.counts.total, checkpoints.counts.completed, checkpoints.counts.in_progress) == (4, 3, 1)
    assert await watch.jobs() == {"team/orders": "RUNNING"}
    location.commit(3)
    for _ in range(4):
        watch.clock.advance(20)
        await watch.client.checkpoints(job.id)
    position = (await watch.client.job(job.id)).position
    assert position is not None
    assert (position.batch, position.sources) == (3, ('{"topic": {"0": 12}}',))
    config = await watch.client.job_config(job.id)
    assert config.user_config["checkpointLocation"] == f"{root}/team/orders"
    assert (await watch.client.checkpoint_details(job.id, 2)).totals.end_to_end_duration == 300
    with pytest.raises(NotFound):
        await watch.client.exceptions(job.id)
    watch.clock.advance(3600)
    await watch.client.checkpoints(job.id)
    assert await watch.jobs() == {"team/orders": "RECONCILING"}


async def test_a_poll_of_one_query_sends_two_requests(root: Path) -> None:
    locations = [Location(root / f"q{number}").run(0, 20) for number in range(5)]
    files = CountedFiles()
    watch = Watch(root, files)
    await watch.jobs()
    for _ in range(20):
        watch.clock.advance(2)
        before = len(files.requests)
        await watch.client.jobs_overview()
        for location in locations:
            await watch.client.checkpoints(location.id)
            await watch.client.job(location.id)
            await watch.client.job_config(location.id)
            for number in (19, 20):
                await watch.client.checkpoint_details(location.id, number)
        assert len(files.requests) - before <= 2 * len(locations)


@pytest.mark.parametrize(
    "act",
    [
        lambda client: client.cancel(QUERY),
        lambda client: client.trigger_savepoint(QUERY, QUERY),
        lambda client: client.stop_with_savepoint(QUERY, QUERY),
        lambda client: client.trigger_checkpoint(QUERY),
        lambda client: client.run_jar("a.py", job_id=QUERY),
        lambda client: client.upload_jar("a.py", b""),
        lambda client: client.delete_jar("a.py"),
        lambda client: client.dispose_savepoint("/s"),
    ],
)
async def test_every_command_is_refused_with_the_reason(
    root: Path, act: Callable[[FlinkClient], Awaitable[Any]]
) -> None:
    with pytest.raises(Refused) as refused:
        await act(Watch(root).client)
    assert (refused.value.status, refused.value.reason) == (405, EngineReason.ONLY_WATCHED())


async def test_an_unknown_query_is_denied_only_after_a_whole_scan(root: Path) -> None:
    for number in range(LISTINGS * 2):
        Location(root / f"{number:03}")
    watch = Watch(root)
    assert len(await watch.jobs()) < LISTINGS
    with pytest.raises(NotReady):
        await watch.client.job(QUERY)
    while watch.client.watched and watch.client.watched.scan.passes == 0:
        await watch.jobs()
    assert len(await watch.jobs()) == LISTINGS * 2
    with pytest.raises(NotFound):
        await watch.client.job(QUERY)


async def test_a_query_is_unknown_if_its_location_is_deleted_but_not_if_the_root_is_missing(root: Path) -> None:
    kept, gone = Location(root / "m/kept").run(0, 1), Location(root / "m/gone").run(0, 1)
    watch = Watch(root / "m")
    await watch.jobs()
    shutil.rmtree(gone.path)
    with pytest.raises(NotFound):
        await watch.client.checkpoints(gone.id)
    assert list(await watch.jobs()) == ["kept"]
    (root / "m").rename(root / "unmounted")
    (root / "m").mkdir()
    with pytest.raises(NotFound):
        await watch.client.checkpoints(kept.id)
    with pytest.raises(RootUnreadable) as unreadable:
        await watch.jobs()
    assert unreadable.value.reason == EngineReason.ROOT_MISSING(root=f"{root}/m")


async def test_a_deleted_checkpoint_ends_its_query_and_the_next_one_follows(root: Path) -> None:
    old = Location(root / "q").run(0, 9)
    watch = Watch(root)
    await watch.jobs()
    await watch.client.checkpoints(old.id)
    shutil.rmtree(old.path)
    new = Location(root / "q").run(0, 1)
    with pytest.raises(NotFound):
        await watch.client.checkpoints(old.id)
    jobs = {job.id: (job.name, job.state) for job in await watch.client.jobs_overview()}
    assert jobs == {old.id: ("q", "CANCELED"), new.id: ("q", "RECONCILING")}
    assert (await watch.client.checkpoints(new.id)).counts.total == 2


async def test_problems_are_named_and_do_not_stop_the_other_queries(root: Path) -> None:
    good, closed = Location(root / "good").run(0, 1), Location(root / "<b>closed</b>").run(0, 1)

    class Guarded(CountedFiles):
        def entries(self, path: str):  # type: ignore[no-untyped-def]
            if path.endswith("/offsets") and "closed" in path:
                raise AccessDenied(f"{path}: the storage refuses access")
            return super().entries(path)

    watch = Watch(root, Guarded())
    assert sorted(await watch.jobs()) == ["<b>closed</b>", "good"]
    with pytest.raises(Refused) as refused:
        await watch.client.checkpoints(closed.id)
    assert isinstance(refused.value.reason, type(EngineReason.ONLY_WATCHED()))
    assert refused.value.reason.code == RefusalReason.NOT_READABLE
    assert (await watch.client.checkpoints(good.id)).counts.total == 2
    Location(root / "half").write("metadata", "{")
    watch.clock.advance(PASS_EVERY_MS / 1000)
    await watch.jobs()
    assert watch.client.watched is not None
    assert watch.client.watched.problem == RefusalReason.METADATA_DAMAGED(location=f"{root}/half")


async def test_storage_that_hangs_is_given_up_and_gets_no_more_requests(root: Path) -> None:
    released = threading.Event()

    class Hanging(CountedFiles):
        def entries(self, path: str):  # type: ignore[no-untyped-def]
            self.requests.append(path)
            released.wait(60)
            return {}

    files = Hanging()
    watch = Watch(root, files)
    watch.client._read_limit_s = 0.05
    for _ in range(HANGING + 3):
        with pytest.raises(Unreachable):
            await watch.jobs()
    eventually("all threads have started", lambda: len(files.requests) >= HANGING)
    assert len(files.requests) == HANGING
    released.set()
    watch.client._read_limit_s = 60
    for _ in range(6000):
        await asyncio.sleep(0.01)
        try:
            assert await watch.jobs() == {}
            break
        except Unreachable:
            continue
    else:
        raise AssertionError("the storage is not asked again")


def test_a_root_must_be_below_the_state_roots(root: Path, settings: Settings) -> None:
    settings.STATE_ROOTS = (f"{root}/other",)
    found = look(root)
    assert found == Problem("rest_url", EngineReason.ROOT_NOT_ALLOWED(root=str(root)))
    with pytest.raises(RequestNotSent):
        asyncio.run(FlinkClient(Connection(str(root), is_directory=True)).jobs_overview())


def test_the_test_of_a_directory_counts_its_queries_and_names_a_problem(root: Path) -> None:
    Location(root / "a").run(0, 1)
    Location(root / "b").write("metadata", "{")
    found = look(root)
    assert isinstance(found, Found)
    assert found.reason == EngineReason.FOUND_QUERIES(count=1)
    assert found.remarks == (RefusalReason.METADATA_DAMAGED(location=f"{root}/b"),)


def test_the_test_of_a_missing_directory_names_it(root: Path) -> None:
    missing = root / "missing"
    expected = Problem("rest_url", EngineReason.ROOT_MISSING(root=str(missing)), passing=True)
    assert look(missing) == expected


def look(root: Path) -> Found | Problem:
    cluster = Cluster(name="c", discovery=Discovery.DIRECTORY, rest_url=str(root))
    return examine(cluster, lambda: pytest.fail("the clock is not needed"))


@pytest.fixture
def saving(root: Path, rows: Any) -> Cluster:
    (root / "m").mkdir()
    return rows.cluster(discovery=Discovery.DIRECTORY, rest_url=f"{root}/m", savepoint_target=f"{root}/savepoints")


@pytest.mark.django_db(transaction=True)
class TestWithADirectoryForSavepoints:
    def ask(self, cluster: Cluster, act: Callable[[FlinkClient], Awaitable[Any]]) -> Any:
        async def asked() -> Any:
            async with FlinkClient(connection_of(cluster), read_limit_s=60) as client:
                await client.jobs_overview()
                return await act(client)

        return asyncio.run(asked())

    def test_a_request_is_stored_once_and_answered_as_flink_does(self, root: Path, saving: Cluster) -> None:
        query = Location(root / "m/team/q").run(0, 1)
        trigger = "ab" * 16
        for _ in range(2):
            assert self.ask(saving, lambda client: client.trigger_savepoint(query.id, trigger)) == trigger
        copy = LocationCopy.objects.get()
        assert (copy.location, copy.target) == (f"{root}/m/team/q", f"{root}/savepoints")
        assert (copy.cluster, copy.query_id, copy.state) == (saving, query.id, "queued")
        answers = []
        for values in (
            {},
            {"state": "copying"},
            {"state": "completed", "path": "/savepoints/a"},
            {"state": "failed", **columns("failure", RefusalReason.TARGET_MISSING(target="/x"))},
        ):
            LocationCopy.objects.update(**values)
            answers.append(self.ask(saving, lambda client: client.savepoint_status(query.id, trigger)))
        assert answers[:3] == [InProgress(), InProgress(), Done("/savepoints/a")]
        assert isinstance(answers[3], Failed)
        assert answers[3].refusal == RefusalReason.TARGET_MISSING(target="/x")
        LocationCopy.objects.all().delete()
        assert self.ask(saving, lambda client: client.savepoint_status(query.id, trigger)) == Forgotten()

    def test_the_answer_is_known_after_the_directory_was_removed_from_the_cluster(
        self, root: Path, saving: Cluster
    ) -> None:
        query = Location(root / "m/q").run(0, 1)
        self.ask(saving, lambda client: client.trigger_savepoint(query.id, "ab" * 16))
        saving.savepoint_target = ""
        assert self.ask(saving, lambda client: client.savepoint_status(query.id, "ab" * 16)) == InProgress()
        with pytest.raises(Refused):
            self.ask(saving, lambda client: client.trigger_savepoint(query.id, "cd" * 16))

    def test_an_unknown_query_is_not_saved(self, root: Path, saving: Cluster) -> None:
        Location(root / "m/q").run(0, 1)
        with pytest.raises(NotFound):
            self.ask(saving, lambda client: client.trigger_savepoint(QUERY, "ab" * 16))
        assert not LocationCopy.objects.exists()

    @pytest.mark.parametrize(
        "act",
        [
            lambda client: client.cancel(QUERY),
            lambda client: client.stop_with_savepoint(QUERY, QUERY),
            lambda client: client.trigger_checkpoint(QUERY),
            lambda client: client.dispose_savepoint("/s"),
        ],
    )
    def test_every_other_command_is_refused(
        self, saving: Cluster, act: Callable[[FlinkClient], Awaitable[Any]]
    ) -> None:
        with pytest.raises(Refused) as refused:
            self.ask(saving, act)
        assert (refused.value.status, refused.value.reason) == (405, EngineReason.ONLY_SAVED())

    def test_a_missing_directory_is_reported_by_the_test_of_the_connection(self, root: Path, saving: Cluster) -> None:
        Location(root / "m/q").run(0, 1)
        found = examine(saving, timezone.now)
        assert isinstance(found, Found)
        assert found.remarks == (RefusalReason.TARGET_MISSING(target=f"{root}/savepoints"),)
        (root / "savepoints").mkdir()
        found = examine(saving, timezone.now)
        assert isinstance(found, Found)
        assert found.remarks == ()
