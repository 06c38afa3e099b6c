"""Savepoints imported from checkpoint locations of real Spark, in every layout of the state store."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointing.checkpoint_location.layout import select_batch
from checkpointing.clock import ManualClock
from checkpointing.ids import is_id, new_id
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.spark.imported import import_savepoint
from checkpointing.spark.restore import UNNAMED, RestoreRefused, Snapshot, check_fits, restore_query
from checkpointing.spark.spark_location import ImportRefused, find
from checkpointing.spark.timelines import begin_timeline
from checkpointing.storage import FileCheckpointStorage, files_for, verify
from checkpointing.storage.files import LocalFiles
from checkpointing.storage.roots import SavepointRoots
from tests.checkpointing.spark.recordings import RECORDINGS, Recording, unpacked
from tests.checkpointing.spark.test_recorded_checkpoints import listing
from tests.storage_servers import StorageServer


@pytest.fixture
def count(tmp_path: Path) -> Recording:
    return unpacked("count in rocksdb format 2", tmp_path / "count")


def imported(locations: dict[str, str], target: str) -> CompletedCheckpoint:
    def storage_of(job_id: str) -> FileCheckpointStorage:
        return FileCheckpointStorage(None, job_id, savepoint_roots=SavepointRoots([target]))

    with tempfile.TemporaryDirectory() as scratch:
        made = import_savepoint(locations, storage_of, target, "wordcount.py", ManualClock(), Path(scratch))
    return verify(made.location, deep=True)


def newest_batch(recording: Recording) -> int:
    return max(int(path.name) for path in recording.location.glob("commits/[0-9]*"))


def fingerprint(directory: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Return the inode, number of links, modification time and content of each file."""
    files = {path: path.stat() for path in directory.rglob("*") if path.is_file()}
    return {
        str(path): (found.st_ino, found.st_nlink, found.st_mtime_ns, path.read_bytes()) for path, found in files.items()
    }


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize("query", ["words", UNNAMED])
def test_an_imported_location_is_restored_unchanged_and_not_modified(name: str, query: str, tmp_path: Path) -> None:
    recording = unpacked(name, tmp_path / "recorded")
    before = fingerprint(recording.location)
    batch = newest_batch(recording)

    checkpoint = imported({query: f"file:{recording.location}"}, str(tmp_path / "savepoints"))
    assert checkpoint.imported_from == (str(recording.location),)
    unnamed = Snapshot(checkpoint)
    snapshot = unnamed.named(["words"])
    assert unnamed.query_id("words") == snapshot.query_id("words")
    assert snapshot.query_id("words") == json.loads((recording.location / "metadata").read_text())["id"]
    check_fits(snapshot, recording.plan.vertices, allow_non_restored_state=False)
    restored = tmp_path / "restored"
    assert restore_query(snapshot, "words", recording.plan.vertices, restored) == batch

    there = {str(path.relative_to(restored)) for path in restored.rglob("[!.]*") if path.is_file()}
    location = {path: size for path, size in listing(recording.files).items() if not path.startswith("sink:")}
    wanted = select_batch(location, batch, lambda path: (recording.location / path).read_bytes())
    assert there == {file.path for file in wanted}
    assert fingerprint(recording.location) == before


@pytest.mark.parametrize(
    ("name", "store", "operators"),
    [
        ("count in hdfs", "HDFS-backed", [("stateStoreSave", 2)]),
        ("total of distinct", "RocksDB", [("stateStoreSave", 1), ("dedupe", 2)]),
        ("lines into files", "", []),
    ],
)
def test_location_is_described_before_its_import(
    name: str, store: str, operators: list[tuple[str, int]], tmp_path: Path
) -> None:
    recording = unpacked(name, tmp_path)
    found = find(str(recording.location))
    assert (found.batch, found.uncommitted_batch, found.num_sources) == (newest_batch(recording), None, 1)
    assert (found.state_store, [(each.name, each.partitions) for each in found.operators()]) == (store, operators)
    assert found.log_format("offsets") == "v1"
    assert found.batch_timestamp_ms is not None


def test_a_batch_that_was_begun_keeps_its_input(count: Recording, tmp_path: Path) -> None:
    batch = newest_batch(count)
    (count.location / "commits" / str(batch)).unlink()
    snapshot = Snapshot(imported({"words": str(count.location)}, str(tmp_path / "savepoints")))

    assert restore_query(snapshot, "words", count.plan.vertices, tmp_path / "restored") == batch - 1
    assert find(str(count.location)).uncommitted_batch == batch
    begun = tmp_path / "restored" / "offsets" / str(batch)
    assert begun.read_bytes() == (count.location / "offsets" / str(batch)).read_bytes()


def test_a_location_that_is_imported_again_is_of_the_same_family(count: Recording, tmp_path: Path) -> None:
    """Jobs that start from the location one after the other must not use the same batch numbers for different rows."""
    target = str(tmp_path / "savepoints")
    first, again = (imported({name: str(count.location)}, target) for name in ("words", UNNAMED))
    assert first.family == again.family
    assert is_id(first.family)
    other = unpacked("distinct", tmp_path / "distinct")
    assert imported({"words": str(other.location)}, target).family != first.family


def test_several_queries_are_one_savepoint(count: Recording, tmp_path: Path) -> None:
    other = unpacked("distinct", tmp_path / "distinct")
    checkpoint = imported({"a": str(count.location), "b": str(other.location)}, str(tmp_path / "savepoints"))
    assert checkpoint.batches == {"a": newest_batch(count), "b": newest_batch(other)}
    assert Snapshot(checkpoint).named(["a", "b"]).queries == ("a", "b")


def test_state_without_a_name_is_not_assigned_to_one_of_several_queries(count: Recording, tmp_path: Path) -> None:
    snapshot = Snapshot(imported({UNNAMED: str(count.location)}, str(tmp_path / "savepoints")))
    with pytest.raises(RestoreRefused, match=r"the queries .a., .b., .* Write --from-checkpoint NAME=LOCATION"):
        snapshot.named(["a", "b"])


def test_state_that_the_program_has_no_operator_for_is_not_left_behind(count: Recording, tmp_path: Path) -> None:
    snapshot = Snapshot(imported({"words": str(count.location)}, str(tmp_path / "savepoints")))
    lines = unpacked("lines into files", tmp_path / "lines")
    with pytest.raises(RestoreRefused, match="has state that the program has no operator for"):
        check_fits(snapshot, lines.plan.vertices, allow_non_restored_state=False)


def test_wrong_names_of_queries_are_reported_with_those_of_the_program(count: Recording, tmp_path: Path) -> None:
    other = unpacked("distinct", tmp_path / "other")
    made = imported({"orders": str(count.location), "csv": str(other.location)}, str(tmp_path / "savepoints"))
    with pytest.raises(RestoreRefused) as refused:
        check_fits(Snapshot(made), list(count.plan.vertices), allow_non_restored_state=False)
    assert "for the queries 'orders', 'csv', but the program has the queries 'words'." in str(refused.value)
    assert "NAME=LOCATION" in str(refused.value)
    assert "allow non-restored state" not in str(refused.value)
    check_fits(Snapshot(made), list(count.plan.vertices), allow_non_restored_state=True)


def nothing(location: Path) -> None:
    shutil.rmtree(location)


def of_a_waymark_job(location: Path) -> None:
    begin_timeline(location, "0" * 32, None)


def a_savepoint(location: Path) -> None:
    (location / "_metadata").write_text("{}")


def without_commits(location: Path) -> None:
    shutil.rmtree(location / "commits")


def without_metadata(location: Path) -> None:
    (location / "metadata").unlink()


def torn_metadata(location: Path) -> None:
    (location / "metadata").write_text("{")


def torn_state(location: Path) -> None:
    next(iter(sorted(location.glob("state/0/1/*.changelog"))[-1:])).unlink()


def torn_commit(location: Path) -> None:
    newest(location, "commits").write_text("")


def newer_offsets(location: Path) -> None:
    newest(location, "offsets").write_text("v9\n{}")


def commits_cleaned(location: Path) -> None:
    for file in sorted(location.glob("commits/[0-9]*"), key=lambda path: int(path.name))[-2:]:
        file.unlink()


def newest(location: Path, log: str) -> Path:
    return max(location.glob(f"{log}/[0-9]*"), key=lambda path: int(path.name))


@pytest.mark.parametrize(
    ("damage", "code", "message"),
    [
        (nothing, "imports.empty", "does not exist, or is empty"),
        (of_a_waymark_job, "imports.of-waymark", "belongs to a job of Waymark. Take a savepoint"),
        (a_savepoint, "imports.snapshot", "is a checkpoint or savepoint. Start the job from it"),
        (without_metadata, "imports.not-of-spark", "it has no file 'metadata'"),
        (without_commits, "imports.no-batch", "has no committed batch"),
        (torn_metadata, "imports.metadata-damaged", "/metadata is damaged"),
        (torn_state, "imports.batch-incomplete", "is not complete: .*state/0/1"),
        (torn_commit, "imports.unknown-format", r"commits/\d+ has the format '', which is not supported"),
        (
            newer_offsets,
            "imports.unknown-format",
            r"the format 'v9', which is not supported; the supported formats are v1",
        ),
        (commits_cleaned, "imports.commits-missing", "commits are missing"),
    ],
)
def test_a_location_that_cannot_be_imported_is_refused_and_leaves_no_files(
    count: Recording, tmp_path: Path, damage: Callable[[Path], None], code: str, message: str
) -> None:
    damage(count.location)
    with pytest.raises(ImportRefused, match=message) as refused:
        imported({"words": str(count.location)}, str(tmp_path / "savepoints"))
    assert refused.value.code == code
    assert not list(tmp_path.glob("savepoints/*"))


@pytest.mark.parametrize("change", ["commit", "grow", "clean"])
def test_a_location_in_use_is_refused(
    count: Recording, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The query continues while the first file is copied."""
    batch = newest_batch(count)
    get = LocalFiles.get

    def copied(self: LocalFiles, path: str, target: Path, like: str) -> str:
        match change:
            case "commit":
                shutil.copy(count.location / "offsets" / str(batch), count.location / "offsets" / str(batch + 1))
            case "grow":
                with Path(path).open("a") as file:
                    file.write("\n")
            case "clean":
                Path(path).unlink()
        return get(self, path, target, like)

    monkeypatch.setattr(LocalFiles, "get", copied)
    with pytest.raises(ImportRefused, match="changed while it was read: a query still runs there"):
        imported({"words": str(count.location)}, str(tmp_path / "savepoints"))
    assert not list(tmp_path.glob("savepoints/*"))


def test_a_remote_location_is_imported_in_the_same_way(
    count: Recording, s3: StorageServer, admitted: Callable[[StorageServer], None], tmp_path: Path
) -> None:
    admitted(s3)
    remote = f"{s3.root}/{new_id()}"
    files = files_for(remote)
    for path in count.location.rglob("*"):
        if path.is_file():
            files.put(path, f"{remote}/{path.relative_to(count.location)}")
    snapshot = Snapshot(imported({"words": remote}, str(tmp_path / "savepoints")))
    assert restore_query(snapshot, "words", count.plan.vertices, tmp_path / "restored") == newest_batch(count)
    metadata = json.loads((tmp_path / "restored" / "metadata").read_text())
    assert metadata == json.loads((count.location / "metadata").read_text())
