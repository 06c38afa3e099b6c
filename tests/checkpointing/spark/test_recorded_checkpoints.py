"""Snapshots of recorded checkpoint directories, and refused ones, in every layout of the state store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpointing.checkpoint_location.layout import select_batch
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import VertexKind
from checkpointing.spark.plan import Sink, query_plan
from checkpointing.spark.rescale import RescaleRefused, rescale
from checkpointing.spark.restore import RestoreRefused, Snapshot, SnapshotDamaged, check_fits, restore_query
from checkpointing.spark.staging import QueryFiles
from checkpointing.storage import SnapshotUnusable, state_file_path, verify
from tests.checkpointing.spark.bench import LAYOUTS, write_checkpoint
from tests.checkpointing.spark.recordings import RECORDINGS, Recording, unpacked
from tests.checkpointing.spark.test_plan import AGGREGATE

NO_SPARK: Any = None


@pytest.fixture
def count(tmp_path: Path) -> Recording:
    return unpacked("count in rocksdb format 2", tmp_path / "count")


@pytest.fixture
def distinct(tmp_path: Path) -> Recording:
    return unpacked("distinct", tmp_path / "distinct")


@pytest.fixture
def total(tmp_path: Path) -> Recording:
    """Return the recording of a total of distinct words. It has two stateful operators, one of them without keys."""
    return unpacked("total of distinct", tmp_path / "total")


@pytest.fixture
def lines(tmp_path: Path) -> Recording:
    """Return the recording of a query without state."""
    return unpacked("lines into files", tmp_path / "lines")


def parallelism(checkpoint: CompletedCheckpoint) -> list[int]:
    return [operator.parallelism for operator in checkpoint.operators if operator.kind is VertexKind.STATEFUL]


def listing(files: QueryFiles) -> dict[str, int]:
    """Return the sizes of a query's files by name, without Hadoop's checksum files."""
    found = {str(path.relative_to(files.location)): path for path in files.location.rglob("[!.]*")}
    if files.sink_log is not None:
        log = {name: files.sink_log.copy_of(name) for name in files.sink_log.log_names()}
        found |= {f"sink:_spark_metadata/{name}": path for name, path in log.items()}
    return {name: path.stat().st_size for name, path in found.items() if path.is_file()}


# --- snapshots -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("back", [0, 1, 3])
@pytest.mark.parametrize("name", RECORDINGS)
def test_a_snapshot_of_any_batch_restores_exactly_its_files(name: str, back: int, tmp_path: Path) -> None:
    files = unpacked(name, tmp_path / "recorded").files
    batch = RECORDINGS[name].batches - 1 - back
    checkpoint = write_checkpoint(files, tmp_path, 1, batch)
    assert verify(checkpoint.location, deep=True).batches == {"words": batch}

    restored = tmp_path / "restored"
    assert restore_query(Snapshot(checkpoint), "words", files.plan.vertices, restored) == batch
    selected = {file.path for file in select_batch(listing(files), batch, files.read)}
    own = {path for path in selected if not path.startswith("sink:")}
    assert set(listing(QueryFiles(files.plan, restored, None))) == own
    for path in own:
        assert (restored / path).read_bytes() == files.read(path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_partition_of_a_snapshot_has_its_state(layout: str, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(unpacked(f"count in {layout}", tmp_path / "recorded").files, tmp_path)
    [stateful] = [operator for operator in checkpoint.operators if operator.kind is VertexKind.STATEFUL]
    assert all(subtask.files for subtask in stateful.subtasks)
    assert parallelism(checkpoint) == [2]


@pytest.mark.parametrize("batch", range(5))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_files_of_a_partition_lead_from_one_whole_state_to_the_batch(
    layout: str, batch: int, tmp_path: Path
) -> None:
    files = unpacked(f"count in {layout}", tmp_path).files
    selected = [Path(file.path) for file in select_batch(listing(files), batch, files.read)]
    for partition in ("state/0/0", "state/0/1"):
        mine = [path for path in selected if str(path.parent) == partition and path.suffix != ".crc"]
        steps = sorted((int(path.stem.partition("_")[0]), path.suffix) for path in mine)
        first, *rest = [version for version, _ in steps]
        assert rest == list(range(first + 1, batch + 2))
        whole = [version for version, suffix in steps if suffix in {".zip", ".snapshot"}]
        assert whole == ([first] if whole or first > 1 else [])
        ssts = {path for path in selected if str(path.parent) == f"{partition}/SSTs" and path.suffix == ".sst"}
        assert bool(ssts) == any(suffix == ".zip" for _, suffix in steps)


def state_files(checkpoint: CompletedCheckpoint) -> list[Any]:
    return [file for file in checkpoint.files if file.path.startswith("state/0/0/")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_damaged_file_is_refused(layout: str, tmp_path: Path) -> None:
    files = unpacked(f"count in {layout}", tmp_path / "recorded").files
    number = len(state_files(write_checkpoint(files, tmp_path / "whole")))
    assert number > 1
    for damaged in range(number):
        checkpoint = write_checkpoint(files, tmp_path / f"damaged-{damaged}")
        file = state_files(checkpoint)[damaged]
        victim = Path(state_file_path(checkpoint, file))
        content = victim.read_bytes()
        victim.unlink()
        victim.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        with pytest.raises(SnapshotUnusable):
            verify(checkpoint.location, deep=True)
        if not file.path.endswith(".sst"):  # SST files are linked without reading them
            with pytest.raises(SnapshotDamaged, match="is damaged"):
                restore_query(Snapshot(checkpoint), "words", files.plan.vertices, tmp_path / f"restored-{damaged}")


# --- incompatible programs -------------------------------------------------------------------------------------------


def test_a_snapshot_with_an_operator_that_the_program_lacks_is_refused_unless_allowed(
    count: Recording, lines: Recording, tmp_path: Path
) -> None:
    checkpoint = write_checkpoint(count.files, tmp_path)
    stateless = query_plan("words", (lines.root / "plan.txt").read_text(), Sink("noop", None), {}).vertices
    with pytest.raises(RestoreRefused, match=r"'aggregate \(stateStoreSave\)' of query 'words'"):
        check_fits(Snapshot(checkpoint), stateless, allow_non_restored_state=False)
    check_fits(Snapshot(checkpoint), stateless, allow_non_restored_state=True)
    second = tmp_path / "second"
    assert restore_query(Snapshot(checkpoint), "words", stateless, second) == 4
    assert not (second / "state").exists()
    assert (second / "commits" / "4").exists()


def test_a_state_that_no_operator_takes_up_is_refused_whatever_its_parallelism(
    count: Recording, distinct: Recording, tmp_path: Path
) -> None:
    """Operators are matched by kind and position, because Spark finds state by its position only."""
    checkpoint = write_checkpoint(count.files, tmp_path)
    other = query_plan("words", (distinct.root / "plan.txt").read_text(), Sink("noop", None), {0: 5}).vertices
    assert [vertex.parallelism for vertex in other if vertex.kind is VertexKind.STATEFUL] == [5]
    with pytest.raises(RestoreRefused, match=r"the program has 'deduplicate \(streamingDeduplicate\)' in its place"):
        check_fits(Snapshot(checkpoint), other, allow_non_restored_state=False)
    with pytest.raises(RestoreRefused, match="cannot add a stateful operator to a query that has run"):
        check_fits(Snapshot(checkpoint), other, allow_non_restored_state=True)


def test_an_operator_that_moved_up_is_not_given_anothers_state(
    total: Recording, distinct: Recording, tmp_path: Path
) -> None:
    checkpoint = write_checkpoint(total.files, tmp_path)
    with pytest.raises(RestoreRefused, match="cannot add a stateful operator to a query that has run"):
        check_fits(Snapshot(checkpoint), distinct.plan.vertices, allow_non_restored_state=True)


def test_a_whole_query_is_left_behind_with_leave_only(count: Recording, tmp_path: Path) -> None:
    checkpoint = write_checkpoint(count.files, tmp_path)
    others = query_plan("others", AGGREGATE, Sink("noop", None), {}).vertices
    with pytest.raises(RestoreRefused, match=r"'aggregate \(stateStoreSave\)' of query 'words', 'Sink: noop' of"):
        check_fits(Snapshot(checkpoint), others, allow_non_restored_state=False)
    check_fits(Snapshot(checkpoint), others, allow_non_restored_state=True)
    assert restore_query(Snapshot(checkpoint), "others", others, tmp_path / "others") is None


# --- states that cannot be rescaled ----------------------------------------------------------------------------------


def test_a_state_of_the_hdfs_backed_provider_is_not_rescaled(tmp_path: Path) -> None:
    files = unpacked("count in hdfs", tmp_path).files
    with pytest.raises(
        RescaleRefused, match=r"only the state of RocksDBStateStoreProvider, and this query uses HDFSBacked"
    ):
        rescale(NO_SPARK, files, 3)
    assert files.last_commit() == 4


def test_a_batch_without_a_commit_is_not_rescaled(count: Recording) -> None:
    (count.location / "commits" / "4").unlink()
    with pytest.raises(RescaleRefused, match="its last batch is not committed"):
        rescale(NO_SPARK, count.files, 3)


def test_a_state_without_keys_is_not_rescaled_as_spark_would_lose_it(total: Recording, tmp_path: Path) -> None:
    assert sorted(parallelism(write_checkpoint(total.files, tmp_path))) == [1, 2]
    with pytest.raises(RescaleRefused, match=r"'aggregate \(stateStoreSave\)' keeps all state in one"):
        rescale(NO_SPARK, total.files, 4)
