"""How staged files get into storage: new files, shared files, damaged files, and uploads that end early."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import struct
import subprocess
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from checkpointing.checkpoint_location.checksums import sums_path
from checkpointing.checkpoint_location.file_store import FileChecksums
from checkpointing.checkpoint_location.layout import BatchFile, IncompleteBatch, Owner
from checkpointing.model.messages import CheckpointKind, StateFile, TriggerCheckpoint, VertexKind
from checkpointing.spark.plan import Sink, query_plan
from checkpointing.spark.snapshot import DurableSubtask, PoolLedger, SnapshotWriter
from checkpointing.spark.staging import QueryFiles, StagedBatch
from checkpointing.spark.uploads import Upload, Uploaded, UploadFailed, upload_share
from checkpointing.storage import StorageError, StorageFull, files_for
from checkpointing.storage.checksums import of_sums, sums_of
from checkpointing.storage.files import LocalFiles
from checkpointing.storage.locations import JOB_MANAGER_MEMORY, parent
from checkpointing.storage.memory_files import MAX_STATE_SIZE, StateTooLarge
from tests.power_cut import Disk
from tests.storage_servers import StorageServer

PLAN = """
StateStoreSave [value#0], state info [ checkpoint = <unknown>, runId = x, opId = 0, ver = 0, numPartitions = 2], Update
+- StreamingRelation FileSource[/in], [value#0]
"""


def content(seed: str, size: int = 10_000) -> bytes:
    return (hashlib.sha256(seed.encode()).digest() * (size // 32 + 1))[:size]


@dataclass
class Bench:
    """A driver's live directory, from which batches are staged, and a storage below `root`."""

    live: Path
    root: str
    checksums: FileChecksums = field(default_factory=FileChecksums)
    ledger: PoolLedger = field(default_factory=PoolLedger)

    def write(self, name: str, data: bytes) -> None:
        """Write a file as Spark does: under another name, then renamed."""
        path = self.live / name
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.tmp")
        partial.write_bytes(data)
        partial.rename(path)

    def write_with_sums(self, name: str, data: bytes) -> None:
        """Write a file with a checksum file, as Spark does with Hadoop's file system."""
        self.write(name, data)
        sums_path(self.live / name).write_bytes(b"crc\x00" + struct.pack(">i", 512) + sums_of(data))

    def stage(self, *names: str) -> StagedBatch:
        staging = self.live.parent / f"staging-{uuid.uuid4().hex}"
        selected = []
        for name in names:
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(self.live / name, staging / name)
            with contextlib.suppress(FileNotFoundError):
                os.link(sums_path(self.live / name), sums_path(staging / name))
            owner = Owner(VertexKind.STATEFUL, 0, int(name.split("/")[2])) if name.startswith("state") else SOURCE
            selected.append(BatchFile(name, (staging / name).stat().st_size, owner, immutable=name.endswith(".sst")))
        plan = query_plan("words", PLAN, Sink("noop", None), {})
        return StagedBatch(QueryFiles(plan, self.live, None), 3, tuple(selected), staging)

    def trigger(
        self, checkpoint_id: int, kind: CheckpointKind = CheckpointKind.CHECKPOINT, **more: Any
    ) -> TriggerCheckpoint:
        directory = f"{self.root}/chk-{checkpoint_id}"
        shared = None if kind.is_savepoint else f"{self.root}/shared"
        files_for(directory).make_directory(directory, new=True)
        return TriggerCheckpoint("s", checkpoint_id, kind, 0, 1000, directory, shared, **more)

    def take(self, trigger: TriggerCheckpoint, *names: str) -> list[DurableSubtask]:
        return list(SnapshotWriter(trigger, self.checksums, self.ledger).write(self.stage(*names)))

    def stored(self, trigger: TriggerCheckpoint, file: StateFile) -> bytes:
        base = trigger.directory if trigger.kind.is_savepoint else parent(trigger.directory)
        return files_for(base).read(f"{base}/{file.location}")


SOURCE = Owner(VertexKind.SOURCE, 0)
A, B = "state/0/0/SSTs/a.sst", "state/0/1/SSTs/b.sst"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "live", str(tmp_path / "storage"))


@pytest.fixture(params=["local", "another file system", "s3", "ftp"])
def any_bench(
    request: pytest.FixtureRequest, tmp_path: Path, admitted: Callable[[StorageServer], None]
) -> Iterator[Bench]:
    match request.param:
        case "local":
            yield Bench(tmp_path / "live", str(tmp_path / "storage"))
        case "another file system":
            yield Bench(tmp_path / "live", str(request.getfixturevalue("other_file_system")))
        case kind:
            server: StorageServer = request.getfixturevalue(kind)
            admitted(server)
            yield Bench(tmp_path / "live", f"{server.root}/{uuid.uuid4().hex}")


def test_every_subtask_lists_its_files_and_only_new_ones_are_stored(any_bench: Bench) -> None:
    bench = any_bench
    for name, seed in ((A, "a"), (B, "b"), ("sources/0/3", "offsets")):
        bench.write(name, content(seed))
    first = bench.trigger(1)
    taken = bench.take(first, A, B, "sources/0/3")
    assert [(each.vertex.kind, each.subtask) for each in taken] == [
        (VertexKind.SOURCE, 0), (VertexKind.STATEFUL, 0), (VertexKind.STATEFUL, 1), (VertexKind.SINK, 0)
    ]  # fmt: skip
    assert [each.new_bytes for each in taken] == [10_000, 10_000, 10_000, 0]
    for subtask in taken:
        for file in subtask.files:
            stored = bench.stored(first, file)
            assert (len(stored), hashlib.sha256(stored).hexdigest()) == (file.size, file.checksum)

    bench.write(A, content("a, compacted"))
    second = bench.trigger(2)
    again = bench.take(second, A, B, "sources/0/3")
    assert [each.new_bytes for each in again] == [10_000, 10_000, 0, 0], (
        "b.sst was stored before; private files are written again"
    )
    assert bench.stored(second, again[1].files[0]) == content("a, compacted")
    assert again[2].files == taken[2].files
    assert len(files_for(bench.root).names(f"{bench.root}/shared")) == 3


def test_a_subtask_is_reported_after_its_files_and_their_names_are_synced(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were in the pool before are synced, too. Their driver may have died before it synced them."""
    synced: list[str] = []
    bench.write(A, content("a"))
    bench.write(B, content("b"))
    bench.take(bench.trigger(1), A)
    monkeypatch.setattr("checkpointing.storage.opening._LOCAL", LocalFiles())  # as in another process
    trigger = bench.trigger(2)
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
    )

    for durable in SnapshotWriter(trigger, bench.checksums, bench.ledger).write(bench.stage(A, B)):
        places = [f"{bench.root}/{file.location}" for file in durable.files]
        assert set(places) <= set(synced)
        pool = f"{bench.root}/shared"
        if durable.new_bytes:
            assert synced.index(pool, synced.index(places[-1])) > synced.index(places[-1])
        synced.clear()


def test_a_driver_that_remembers_nothing_moves_no_more(any_bench: Bench) -> None:
    """After a restart, the driver finds files in the pool by their content."""
    any_bench.write(A, content("a"))
    any_bench.take(any_bench.trigger(1), A)
    fresh = Bench(any_bench.live, any_bench.root)
    fresh.write("copy", content("a"))
    (any_bench.live / "copy").rename(any_bench.live / A)  # the same bytes in another file
    assert [each.new_bytes for each in fresh.take(fresh.trigger(2), A)] == [0, 0, 0, 0]


def test_a_full_checkpoint_and_a_savepoint_contain_all_files(any_bench: Bench) -> None:
    any_bench.write(A, content("a"))
    any_bench.take(any_bench.trigger(1), A)
    savepoint = any_bench.trigger(2, CheckpointKind.SAVEPOINT)
    for trigger, location in ((savepoint, f"words/{A}"), (any_bench.trigger(3, full=True), f"chk-3/words/{A}")):
        subtask = any_bench.take(trigger, A)[1]
        assert (subtask.new_bytes, subtask.files[0].location, subtask.files[0].shared) == (10_000, location, False)
        assert any_bench.stored(trigger, subtask.files[0]) == content("a")


def test_the_same_content_twice_in_one_batch_is_moved_once(any_bench: Bench) -> None:
    any_bench.write(A, content("same"))
    any_bench.write(B, content("same"))
    taken = any_bench.take(any_bench.trigger(1), A, B)
    assert sum(each.new_bytes for each in taken) == 10_000
    assert taken[1].files[0].location == taken[2].files[0].location


@pytest.mark.parametrize("damage", [content("a")[:-1], content("another")], ids=["cut off", "same size"])
def test_a_damaged_file_of_the_pool_is_replaced_which_repairs_older_checkpoints(bench: Bench, damage: bytes) -> None:
    bench.write(A, content("a"))
    first = bench.trigger(1)
    file = bench.take(first, A)[1].files[0]
    damaged = Path(bench.root) / file.location
    damaged.unlink()
    damaged.write_bytes(damage)
    assert bench.take(bench.trigger(2), A)[1].new_bytes == 10_000
    assert bench.stored(first, file) == content("a")


def test_a_large_file_is_checked_by_the_checksums_written_with_it(any_bench: Bench) -> None:
    data = content("large", 3_000_000)
    any_bench.write_with_sums(A, data)
    file = any_bench.take(trigger := any_bench.trigger(1), A)[1].files[0]
    assert file.checksum == of_sums(sums_of(data))
    assert file.location == f"shared/{file.checksum}"
    assert any_bench.stored(trigger, file) == data
    assert files_for(any_bench.root).checksum(f"{any_bench.root}/{file.location}", file.checksum) == file.checksum

    fresh = Bench(any_bench.live, any_bench.root)
    assert fresh.take(fresh.trigger(2), A)[1].new_bytes == 0, "a driver that remembers nothing names it the same"


def test_a_large_file_damaged_before_the_snapshot_is_detected(bench: Bench) -> None:
    bench.write_with_sums(A, data := content("large", 3_000_000))
    (bench.live / A).write_bytes(data[:-1] + b"?")
    file = bench.take(bench.trigger(1), A)[1].files[0]
    assert files_for(bench.root).checksum(f"{bench.root}/{file.location}", file.checksum) != file.checksum


def test_a_file_of_no_known_operator_is_an_incomplete_batch(bench: Bench) -> None:
    bench.write("state/0/7/SSTs/x.sst", b"x")
    with pytest.raises(IncompleteBatch, match=r"state/0/7/SSTs/x\.sst belongs to no known operator"):
        bench.take(bench.trigger(1), "state/0/7/SSTs/x.sst")


def test_an_aborted_upload_leaves_nothing_running_and_lists_its_files(any_bench: Bench) -> None:
    names = [f"state/0/0/SSTs/{number}.sst" for number in range(20)]
    for name in names:
        any_bench.write(name, content(name))
    writer = SnapshotWriter(any_bench.trigger(1), any_bench.checksums, any_bench.ledger)
    subtasks = writer.write(any_bench.stage(*names))
    next(subtasks)
    subtasks.close()
    pool = f"{any_bench.root}/shared"
    brought = any_bench.ledger.aborted(1)
    assert sorted(brought) == sorted(f"{pool}/{name}" for name in files_for(pool).names(pool))


def test_a_full_disk_is_named_and_older_snapshots_are_unchanged(bench: Bench, small_disk: Path) -> None:
    bench.root = str(small_disk)
    bench.write(A, content("a", 300_000))
    first = bench.trigger(1)
    file = bench.take(first, A)[1].files[0]
    bench.write(B, content("b", 2_000_000))
    second = bench.trigger(2)
    with pytest.raises(StorageFull, match="the storage is full"):
        bench.take(second, A, B)
    for location in bench.ledger.aborted(2):
        files_for(location).remove_file(location)
    files_for(second.directory).remove_tree(second.directory)
    assert bench.stored(first, file) == content("a", 300_000)
    assert [path.name for path in (small_disk / "shared").iterdir()] == [Path(file.location).name], (
        "nothing half is left"
    )
    bench.write(B, content("smaller"))
    assert len(bench.take(bench.trigger(3), A, B)) == 4, "and the next one goes through"


def test_a_disk_that_is_read_only_is_named(bench: Bench, small_disk: Path) -> None:
    bench.root = str(small_disk)
    bench.write(A, content("a"))
    trigger = bench.trigger(1)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StorageError, match=r"refuses access.*Read-only"):
        bench.take(trigger, A)


# --- uploads by executors ---


@dataclass
class Carriers:
    """Uploads as an executor does them, but in this process. With `fail`, they fail after the first file."""

    least_bytes: int = 0
    fail: bool = False
    asked: list[Upload] = field(default_factory=list)

    def bring(self, uploads: Sequence[Upload], what: str, is_over: Callable[[], bool]) -> Sequence[Uploaded]:
        self.asked += uploads
        brought = list(upload_share(uploads[:1] if self.fail else uploads))
        if self.fail:
            raise UploadFailed("PermissionError: Access Denied")
        return brought


@pytest.fixture
def s3_bench(s3: StorageServer, admitted: Callable[[StorageServer], None], tmp_path: Path) -> Bench:
    admitted(s3)
    return Bench(tmp_path / "live", f"{s3.root}/{uuid.uuid4().hex}")


def brought_by(bench: Bench, carriers: Carriers, checkpoint_id: int, *names: str) -> list[DurableSubtask]:
    writer = SnapshotWriter(bench.trigger(checkpoint_id), bench.checksums, bench.ledger, carriers)
    return list(writer.write(bench.stage(*names)))


def test_executors_upload_missing_files_and_these_count_as_created_by_the_checkpoint(s3_bench: Bench) -> None:
    for name, seed in ((A, "same"), (B, "same"), ("sources/0/3", "offsets")):
        s3_bench.write(name, content(seed))
    first, again = Carriers(), Carriers()
    taken = brought_by(s3_bench, first, 1, A, B, "sources/0/3")
    assert sorted(each.path for each in first.asked) == sorted([A, B, "sources/0/3"])
    assert [each.new_bytes for each in taken] == [10_000, 10_000, 0, 0], "the same content counts once"
    for file in [file for each in taken for file in each.files]:
        assert (
            hashlib.sha256(files_for(s3_bench.root).read(f"{s3_bench.root}/{file.location}")).hexdigest()
            == file.checksum
        )
    assert brought_by(s3_bench, again, 2, A, B, "sources/0/3")[1].new_bytes == 0
    assert [each.path for each in again.asked] == ["sources/0/3"], "what is known to be in the pool is not"
    pool = f"{s3_bench.root}/shared"
    assert s3_bench.ledger.aborted(1) == [], "another checkpoint uses it"
    fresh = Bench(s3_bench.live, s3_bench.root)
    assert brought_by(fresh, Carriers(), 3, A, B)[1].new_bytes == 0, "the executors see that it is there"
    fresh.write(A, content("other"))
    brought_by(fresh, Carriers(), 4, A)
    assert fresh.ledger.aborted(4) == [f"{pool}/{hashlib.sha256(content('other')).hexdigest()}"]


def test_the_driver_uploads_what_the_executors_cannot_and_reports_why(
    s3_bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (A, B):
        s3_bench.write(name, content(name))
    taken = brought_by(s3_bench, Carriers(fail=True), 1, A, B)
    assert [each.new_bytes for each in taken] == [0, 10_000, 10_000, 0]
    assert "the driver does it, because the executors could not: PermissionError: Access Denied" in caplog.text
    assert len(s3_bench.ledger.aborted(1)) == 2, "it is this checkpoint's, whoever brought it"


def test_executors_upload_neither_small_nor_linked_files(bench: Bench, s3_bench: Bench) -> None:
    for each, carriers in ((s3_bench, Carriers(least_bytes=10_001)), (bench, Carriers())):
        each.write(A, content("a"))
        brought_by(each, carriers, 1, A)
        assert carriers.asked == []


# --- the job manager's memory ---


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "live", f"{JOB_MANAGER_MEMORY}/{uuid.uuid4().hex}")
    yield bench
    with contextlib.suppress(FileNotFoundError):
        files_for(bench.root).remove_tree(bench.root)


def test_state_for_the_job_managers_memory_is_only_in_the_subtask(memory: Bench) -> None:
    memory.write(A, content("a"))
    trigger = memory.trigger(1)
    subtask = memory.take(trigger, A)[1]
    (file,) = subtask.files
    assert file.location == f"chk-1/words/{A}"
    assert {k: base64.b64decode(v) for k, v in subtask.contents.items()} == {file.location: content("a")}
    with pytest.raises(FileNotFoundError):
        memory.stored(trigger, file)


def test_state_too_large_for_an_acknowledgement_is_refused_with_flinks_message(memory: Bench) -> None:
    memory.write(A, content("a", MAX_STATE_SIZE))
    memory.take(memory.trigger(1), A)
    memory.write("state/0/0/1.changelog", b"x")
    with pytest.raises(StateTooLarge) as caught:
        memory.take(memory.trigger(2), A, "state/0/0/1.changelog")
    assert str(caught.value) == (
        "Size of the state is larger than the maximum permitted memory-backed state. Size=5242881, maxSize=5242880. "
        "Consider using a different checkpoint storage, like the FileSystemCheckpointStorage."
    )


@pytest.mark.parametrize("brought_before", [False, True], ids=["new files", "one that a dead driver had just brought"])
def test_a_snapshot_that_was_handed_in_survives_a_power_cut(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, brought_before: bool
) -> None:
    """All files and their directories are synced. Files that are already in the pool may not be on disk yet."""
    state, offsets = content("a"), b"offsets"
    bench.write(A, state)
    bench.write("sources/0/3", offsets)
    LocalFiles().make_directory(f"{bench.root}/shared")
    taken: list[DurableSubtask] = []

    def take() -> None:
        if brought_before:
            LocalFiles().put(bench.live / A, f"{bench.root}/shared/{hashlib.sha256(state).hexdigest()}")
        monkeypatch.setattr("checkpointing.storage.opening._LOCAL", LocalFiles())  # as in another process
        taken.extend(bench.take(bench.trigger(1), A, "sources/0/3"))

    disk = Disk(Path(bench.root))
    with disk.recorded():
        take()
    locations = {f"{bench.root}/{file.location}": file.checksum for subtask in taken for file in subtask.files}
    assert len(locations) == 2
    for cut in disk.cuts():
        if cut.is_over:
            for location, checksum in locations.items():
                assert hashlib.sha256(Path(location).read_bytes()).hexdigest() == checksum
