"""Savepoints of queries that run: each is complete as of one commit, although Spark writes and removes files."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from checkpointing.checkpoint_location.layout import IncompleteBatch, check_source_logs
from checkpointing.clock import ManualClock
from checkpointing.ids import new_id
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.spark.imported import ATTEMPTS, import_savepoint, stage_running
from checkpointing.spark.restore import Snapshot, restore_query
from checkpointing.spark.spark_location import UNNAMED, ImportRefused, find_running
from checkpointing.storage import FileCheckpointStorage, files_for, local_copy, verify
from checkpointing.storage.files import LocalFiles
from tests.checkpointing.spark.recordings import RECORDINGS, Recording, unpacked
from tests.checkpointing.spark.test_imported import fingerprint, newest_batch
from tests.storage_servers import StorageServer


@pytest.fixture
def count(tmp_path: Path) -> Recording:
    return unpacked("count in rocksdb format 2", tmp_path / "count")


def query_id(recording: Recording) -> str:
    return str(json.loads((recording.location / "metadata").read_text())["id"])


def saved(recording: Recording, target: Path, files: LocalFiles | None = None) -> CompletedCheckpoint:
    return saved_at(str(recording.location), query_id(recording), str(target), files)


def saved_at(location: str, query: str, target: str, files: LocalFiles | None = None) -> CompletedCheckpoint:
    with tempfile.TemporaryDirectory() as scratch:
        made = import_savepoint(
            {UNNAMED: location},
            lambda job_id: FileCheckpointStorage(None, job_id),
            target,
            "",
            ManualClock(),
            Path(scratch),
            stage=partial(stage_running, query_id=query, files=files),
        )
    return verify(made.location, deep=True)


class MovingFiles(LocalFiles):
    """Local files that change before the first `times` copies of a file whose path ends with `suffix`."""

    def __init__(self, suffix: str, change: Callable[[Path], None], times: int = 1) -> None:
        self.suffix, self.change, self.left = suffix, change, times

    def get(self, path: str, target: Path, like: str) -> str:
        if path.endswith(self.suffix) and self.left:
            self.left -= 1
            self.change(Path(path))
        return super().get(path, target, like)


def begin_next(recording: Recording, *, commit: bool = False) -> None:
    """Write the log of the next batch, which has no state here."""
    batch = newest_batch(recording)
    for log in ("offsets", "commits") if commit else ("offsets",):
        shutil.copy(recording.location / log / str(batch), recording.location / log / str(batch + 1))


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_layout_is_saved_with_the_same_files_as_a_stopped_query(name: str, tmp_path: Path) -> None:
    recording = unpacked(name, tmp_path / "recorded")
    batch = newest_batch(recording)
    begin_next(recording)
    (recording.location / "state" / "0" / "0").mkdir(parents=True, exist_ok=True)
    (recording.location / "state" / "0" / "0" / f".{batch + 2}.delta.0.tmp").write_text("unfinished")
    before = fingerprint(recording.location)

    checkpoint = saved(recording, tmp_path / "savepoints")
    snapshot = Snapshot(checkpoint).named(["words"])
    assert restore_query(snapshot, "words", recording.plan.vertices, tmp_path / "restored") == batch
    assert not (tmp_path / "restored" / "offsets" / str(batch + 1)).exists()
    assert checkpoint.imported_queries == (query_id(recording),)
    assert fingerprint(recording.location) == before


def test_a_file_that_spark_removes_meanwhile_leads_to_a_newer_batch(count: Recording, tmp_path: Path) -> None:
    """The commit disappears during the first attempt. The next attempt finds another newest batch."""
    batch = newest_batch(count)
    files = MovingFiles(f"commits/{batch}", Path.unlink)
    assert saved(count, tmp_path / "savepoints", files).batches == {UNNAMED: batch - 1}
    assert files.left == 0


def test_a_batch_that_spark_has_cleaned_up_after_its_copy_is_complete(count: Recording, tmp_path: Path) -> None:
    """Many batches were committed during a long copy of the large files, which are copied last."""

    def continues(_: Path) -> None:
        for log in ("offsets", "commits"):
            shutil.rmtree(count.location / log)
            (count.location / log).mkdir()
            (count.location / log / "200").write_text("v1\n{}")

    largest = max(find_running(str(count.location)).selected, key=lambda file: file.size)
    files = MovingFiles(largest.path, continues)
    assert saved(count, tmp_path / "savepoints", files).batches == {UNNAMED: 4}
    assert files.left == 0


@pytest.mark.parametrize("suffix", [".sst", ".changelog", "offsets/4", "offsets/3", "metadata"])
def test_a_file_that_is_gone_for_good_is_reported_after_some_attempts(
    count: Recording, tmp_path: Path, suffix: str
) -> None:
    with pytest.raises(ImportRefused) as refused:
        saved(count, tmp_path / "savepoints", MovingFiles(suffix, lambda path: path.unlink(), times=1))
    assert refused.value.code in ("imports.batch-incomplete", "imports.not-of-spark")
    assert not list(tmp_path.glob("savepoints/*"))


def test_the_copy_is_not_repeated_without_end(count: Recording, tmp_path: Path) -> None:
    def grow(path: Path) -> None:
        with path.open("a") as file:
            file.write(" ")

    files = MovingFiles("commits/4", grow, times=100)
    with pytest.raises(ImportRefused) as refused:
        saved(count, tmp_path / "savepoints", files)
    assert (refused.value.code, refused.value.values["count"]) == ("imports.too-fast", ATTEMPTS)
    assert files.left == 100 - ATTEMPTS


@pytest.mark.parametrize("when", ["commits/4", "metadata", "offsets/3", "/schema"])
def test_a_checkpoint_that_was_begun_again_meanwhile_is_not_mixed_with_the_old_one(
    count: Recording, tmp_path: Path, when: str
) -> None:
    """All files of the new query have the names and sizes of the old ones."""
    other, size = query_id(count)[:-4] + "0000", (count.location / "metadata").stat().st_size

    def replaced(path: Path) -> None:
        metadata = count.location / "metadata"
        metadata.unlink()
        metadata.write_text(json.dumps({"id": other}, separators=(",", ":")))
        assert metadata.stat().st_size == size

    files = MovingFiles(when, replaced)
    with pytest.raises(ImportRefused) as refused:
        saved(count, tmp_path / "savepoints", files)
    assert files.left == 0
    assert refused.value.code == "imports.of-another-query"
    assert not list(tmp_path.glob("savepoints/*"))


def test_a_snapshot_that_was_written_again_meanwhile_is_copied_with_its_own_files(
    count: Recording, tmp_path: Path
) -> None:
    """Another attempt of a task may replace a zip by one of the same size that refers to other files."""
    [zipped, *_] = [file.path for file in find_running(str(count.location)).selected if file.path.endswith(".zip")]

    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[40:44] = bytes(4)
        path.unlink()
        path.write_bytes(content)

    with pytest.raises(ImportRefused) as refused:
        saved(count, tmp_path / "savepoints", MovingFiles(zipped, damage))
    assert refused.value.code == "imports.batch-incomplete"
    assert not list(tmp_path.glob("savepoints/*"))


def test_a_query_on_an_object_store_is_saved_there(
    count: Recording, s3: StorageServer, admitted: Callable[[StorageServer], None], tmp_path: Path
) -> None:
    admitted(s3)
    remote = f"{s3.root}/{new_id()}"
    files = files_for(remote)
    for path in count.location.rglob("*"):
        if path.is_file():
            files.put(path, f"{remote}/lake/{path.relative_to(count.location)}")
    checkpoint = saved_at(f"{remote}/lake", query_id(count), f"{remote}/savepoints")
    assert checkpoint.location.startswith(f"{remote}/savepoints/savepoint-")
    snapshot = Snapshot(local_copy(checkpoint, tmp_path / "copy")).named(["words"])
    assert restore_query(snapshot, "words", count.plan.vertices, tmp_path / "restored") == newest_batch(count)


def test_symbolic_links_are_not_followed(count: Recording, tmp_path: Path) -> None:
    for name in ("metadata", "commits"):
        (count.location / name).rename(tmp_path / name)
        (count.location / name).symlink_to(tmp_path / name)
    with pytest.raises(ImportRefused) as refused:
        saved(Recording(count.root), tmp_path / "savepoints")
    assert refused.value.code == "imports.not-of-spark"


@pytest.mark.parametrize(
    ("names", "position", "complete"),
    [
        (["0", "1", "2"], 2, True),
        (["0", "1", "2", "3"], 2, True),
        (["9.compact", "10", "8"], 10, True),
        (["9.compact", "8"], 5, True),
        (["0", "1"], 2, False),
        (["0", "2"], 2, False),
        (["9.compact", "11"], 11, False),
        ([], 0, False),
    ],
)
def test_a_listing_that_lacks_entries_of_a_file_source_is_recognized(
    names: list[str], position: int, complete: bool
) -> None:
    listing = {f"sources/0/{name}": 1 for name in names} | {"sources/1/0": 1}
    offsets = f'v1\n{{}}\n{{"logOffset":{position}}}\n{{"logOffset":0}}\n5\n-'.encode()
    if complete:
        check_source_logs(listing, offsets)
    else:
        with pytest.raises(IncompleteBatch, match="sources/0/ lacks entries"):
            check_source_logs(listing, offsets)
