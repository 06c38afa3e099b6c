"""Which files belong to a batch, with listings of every layout as PySpark 4.3 writes them."""

from __future__ import annotations

import io
import json
import uuid
import zipfile

import pytest

from checkpointing.checkpoint_location.layout import (
    IncompleteBatch,
    Owner,
    committed_batches,
    select_batch,
    source_positions,
)
from checkpointing.model.messages import VertexKind
from checkpointing.spark.staging import SINK_LOCATION, file_name
from checkpointing.storage.layout import QUERY_ENTRIES


def uid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def zip_of(*ssts: str, logs: tuple[str, ...] = ()) -> bytes:
    metadata = {
        "sstFiles": [{"localFileName": f"0{n}.sst", "dfsSstFileName": sst} for n, sst in enumerate(ssts)],
        "logFiles": [{"dfsLogFileName": name} for name in logs],
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps(metadata))
    return buffer.getvalue()


class Checkpoint:
    """A checkpointLocation in memory, with the logs of batches 0 to `last` and added files."""

    def __init__(self, last: int) -> None:
        self.files: dict[str, bytes] = {"metadata": b"{}"}
        for batch in range(last + 1):
            self.add(f"offsets/{batch}", f"commits/{batch}", f"sources/0/{batch}")

    def add(self, *paths: str, content: bytes = b"x") -> Checkpoint:
        self.files.update(dict.fromkeys(paths, content))
        return self

    def commit(self, batch: int, ids: dict[str, list[list[str]]]) -> None:
        self.add(f"commits/{batch}", content=b"v2\n" + json.dumps({"stateUniqueIds": ids}).encode())

    def remove(self, path: str) -> None:
        del self.files[path]

    def select(self, batch: int) -> set[str]:
        return {file.path for file in self.chosen(batch)}

    def chosen(self, batch: int):
        sizes = {path: len(content) for path, content in self.files.items()}
        return select_batch(sizes, batch, lambda path: self.files[path])

    def state(self, batch: int) -> set[str]:
        return {path.removeprefix("state/0/0/") for path in self.select(batch) if path.startswith("state/")}

    def sources(self, batch: int) -> set[str]:
        return {path.removeprefix("sources/") for path in self.select(batch) if path.startswith("sources/")}


def test_the_logs_of_a_batch_include_the_offsets_before_it() -> None:
    checkpoint = Checkpoint(5)
    checkpoint.add("offsets/6", "offsets/.6.crc", ".metadata.crc")
    logs = {path for path in checkpoint.select(4) if not path.startswith("sources/")}
    assert logs == {"metadata", "offsets/3", "offsets/4", "commits/4"}


def test_the_first_batch_has_no_offsets_before_it() -> None:
    assert Checkpoint(0).select(0) == {"metadata", "offsets/0", "commits/0", "sources/0/0"}


@pytest.mark.parametrize("path", ["metadata", "offsets/3", "offsets/2", "commits/3"])
def test_a_log_that_is_missing_is_named(path: str) -> None:
    checkpoint = Checkpoint(3)
    checkpoint.remove(path)
    with pytest.raises(IncompleteBatch, match=f"{path} is missing"):
        checkpoint.select(3)


def test_the_log_of_a_source_is_copied_completely() -> None:
    checkpoint = Checkpoint(3).add("sources/0/9.compact", "sources/1/0", "sources/0/.3.crc", "sources/0/.7.x.tmp")
    assert checkpoint.sources(2) == {"0/0", "0/1", "0/2", "0/3", "0/9.compact", "1/0"}


def test_compacted_entries_of_a_source_log_are_left_out() -> None:
    """The second-newest compacted file is kept: its distance to the newest one is Spark's compaction interval."""
    checkpoint = Checkpoint(13).add("sources/0/3.compact", "sources/0/7.compact", "sources/0/11.compact")
    for gone in (3, 7, 11):
        checkpoint.remove(f"sources/0/{gone}")
    checkpoint.add("sources/1/0", "sources/1/7.compact", "sources/0/own")
    newest = {"0/7.compact", "0/8", "0/9", "0/10", "0/11.compact", "0/12", "0/13"}
    assert checkpoint.sources(13) == {*newest, "0/own", "1/0", "1/7.compact"}
    assert checkpoint.sources(5) == checkpoint.sources(13), "the log runs ahead of the batch: compacted files have it"


def test_compacted_logs_may_be_shared() -> None:
    """Compacted logs list all files that were ever read or written, and are in many snapshots."""
    checkpoint = Checkpoint(9).add("sources/0/3.compact", "sources/0/7.compact", "sources/1/0")
    checkpoint.add(*(f"sink:_spark_metadata/{name}" for name in ("4.compact", "5", "6", "7", "8", "9.compact")))
    shareable = {file.path for file in checkpoint.chosen(9) if file.immutable}
    assert shareable == {"sources/0/3.compact", "sources/0/7.compact", "sink:_spark_metadata/9.compact"}


def test_hdfs_copies_the_newest_snapshot_and_the_deltas_after_it() -> None:
    checkpoint = Checkpoint(8)
    checkpoint.add(*(f"state/0/0/{v}.delta" for v in range(1, 10)), "state/0/0/3.snapshot", "state/0/0/6.snapshot")
    checkpoint.add("state/0/0/9.snapshot")
    assert checkpoint.state(7) == {"6.snapshot", "7.delta", "8.delta"}
    assert checkpoint.state(8) == {"9.snapshot"}


def test_hdfs_without_a_snapshot_copies_every_delta() -> None:
    checkpoint = Checkpoint(2).add("state/0/0/1.delta", "state/0/0/2.delta", "state/0/0/3.delta")
    assert checkpoint.state(1) == {"1.delta", "2.delta"}


def test_a_delta_missing_in_between_is_named() -> None:
    checkpoint = Checkpoint(3).add("state/0/0/1.delta", "state/0/0/2.delta", "state/0/0/4.delta")
    with pytest.raises(IncompleteBatch, match="state/0/0: the files of version 3 of the state are missing"):
        checkpoint.select(3)


def test_rocksdb_without_changelog_copies_the_zip_of_the_version_and_its_files() -> None:
    checkpoint = Checkpoint(2)
    checkpoint.add("state/0/0/2.zip", content=zip_of("a.sst"))
    checkpoint.add("state/0/0/3.zip", content=zip_of("a.sst", "b.sst", logs=("l.log",)))
    checkpoint.add("state/0/0/SSTs/a.sst", "state/0/0/SSTs/b.sst", "state/0/0/SSTs/other.sst", "state/0/0/logs/l.log")
    assert checkpoint.state(2) == {"3.zip", "SSTs/a.sst", "SSTs/b.sst", "logs/l.log"}


def test_an_sst_that_the_zip_refers_to_and_is_not_there_is_named() -> None:
    checkpoint = Checkpoint(0)
    checkpoint.add("state/0/0/1.zip", content=zip_of("gone.sst"))
    with pytest.raises(IncompleteBatch, match=r"SSTs/gone\.sst is missing"):
        checkpoint.select(0)


def test_changelogs_follow_the_newest_zip() -> None:
    checkpoint = Checkpoint(5).add(*(f"state/0/0/{v}.changelog" for v in range(1, 7)), "state/0/0/SSTs/a.sst")
    checkpoint.add("state/0/0/4.zip", content=zip_of("a.sst"))
    assert checkpoint.state(5) == {"4.zip", "SSTs/a.sst", "5.changelog", "6.changelog"}
    assert checkpoint.state(2) == {"1.changelog", "2.changelog", "3.changelog"}


def format_2(last: int) -> Checkpoint:
    checkpoint = Checkpoint(last)
    for batch in range(last + 1):
        checkpoint.commit(batch, {"0": [[uid(str(batch))]]})
        name = f"state/0/0/{batch + 1}_{uid(str(batch))}.changelog"
        checkpoint.add(name, name + ".crc")
    return checkpoint


def test_format_2_follows_the_ids_that_the_commits_name() -> None:
    checkpoint = format_2(3)
    checkpoint.add(f"state/0/0/2_{uid('failed')}.changelog", f"state/0/0/4_{uid('failed')}.changelog")
    expected = {f"{batch + 1}_{uid(str(batch))}.changelog{end}" for batch in range(4) for end in ("", ".crc")}
    assert checkpoint.state(3) == expected


def test_format_2_never_builds_on_the_zip_of_a_failed_attempt() -> None:
    checkpoint = format_2(3)
    checkpoint.add(f"state/0/0/3_{uid('failed')}.zip", content=zip_of())
    assert f"3_{uid('failed')}.zip" not in checkpoint.state(3)
    checkpoint.add(f"state/0/0/3_{uid('2')}.zip", content=zip_of())
    steps = {name for name in checkpoint.state(3) if not name.endswith(".crc")}
    assert steps == {f"3_{uid('2')}.zip", f"4_{uid('3')}.changelog"}


def test_format_2_ignores_a_zip_of_several_attempts_without_a_commit() -> None:
    checkpoint = format_2(3)
    checkpoint.add(f"state/0/0/2_{uid('failed')}.zip", content=zip_of())
    checkpoint.remove("commits/1")
    names = checkpoint.state(3)
    assert f"2_{uid('failed')}.zip" not in names
    assert f"1_{uid('0')}.changelog" in names


def test_format_2_uses_the_single_attempt_of_a_version_without_a_commit() -> None:
    checkpoint = format_2(3)
    checkpoint.add(f"state/0/0/2_{uid('1')}.zip", content=zip_of())
    for batch in (0, 1, 2):
        checkpoint.remove(f"commits/{batch}")
    checkpoint.remove(f"state/0/0/1_{uid('0')}.changelog")
    assert f"2_{uid('1')}.zip" in checkpoint.state(3)


def test_each_store_of_a_join_is_copied_separately() -> None:
    checkpoint = Checkpoint(1)
    stores = ["left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues", "right-keyWithIndexToValue"]
    for store in stores:
        checkpoint.add(f"state/0/1/{store}/1.delta", f"state/0/1/{store}/2.delta")
    checkpoint.add("state/0/1/left-keyToNumValues/1.snapshot", "state/0/1/left-keyToNumValues/_metadata/schema")
    names = {path.removeprefix("state/0/1/") for path in checkpoint.select(1) if path.startswith("state/")}
    assert "left-keyToNumValues/1.delta" not in names
    assert "right-keyToNumValues/1.delta" in names
    assert "left-keyToNumValues/_metadata/schema" in names
    assert len(names) == 9


def test_operator_metadata_of_later_batches_is_left_out() -> None:
    checkpoint = Checkpoint(6).add(
        "state/0/_metadata/v2/0", "state/0/_metadata/v2/6", f"state/0/_stateSchema/default/0_{uid('a')}"
    )
    assert checkpoint.state(5) == {"state/0/_metadata/v2/0", f"state/0/_stateSchema/default/0_{uid('a')}"}


def test_every_file_belongs_to_one_subtask() -> None:
    checkpoint = Checkpoint(0).add(
        "sources/1/0", "state/2/1/1.delta", "state/2/_metadata/metadata", "sink:_spark_metadata/0"
    )
    owners = {file.path: file.owner for file in checkpoint.chosen(0)}
    sink, stateful = Owner(VertexKind.SINK, 0), VertexKind.STATEFUL
    assert owners == {
        "metadata": sink,
        "commits/0": sink,
        "sink:_spark_metadata/0": sink,
        "offsets/0": Owner(VertexKind.SOURCE, 0),
        "sources/0/0": Owner(VertexKind.SOURCE, 0),
        "sources/1/0": Owner(VertexKind.SOURCE, 1),
        "state/2/1/1.delta": Owner(stateful, 2, 1),
        "state/2/_metadata/metadata": Owner(stateful, 2),
    }


def test_the_log_of_a_file_sink_is_copied_as_of_the_batch() -> None:
    checkpoint = Checkpoint(13)
    names = [str(n) for n in range(10, 14)] + ["9.compact", *map(str, range(5, 9))]
    checkpoint.add(*(f"sink:_spark_metadata/{name}" for name in names))

    def log(batch: int) -> set[str]:
        prefix = "sink:_spark_metadata/"
        return {path.removeprefix(prefix) for path in checkpoint.select(batch) if path.startswith(prefix)}

    assert log(11) == {"9.compact", "10", "11"}
    assert log(9) == {"9.compact"}
    with pytest.raises(IncompleteBatch, match="lacks entries of batches up to 8"):
        log(8)  # entries 0 to 4 were removed when 9 compacted them
    checkpoint.add(*(f"sink:_spark_metadata/{name}" for name in range(5)))
    assert log(8) == set(map(str, range(9)))


def test_a_file_sink_that_lacks_the_batch_is_not_ready() -> None:
    checkpoint = Checkpoint(3).add(*(f"sink:_spark_metadata/{number}" for number in range(3)))
    with pytest.raises(IncompleteBatch, match="lacks entries of batches up to 3"):
        checkpoint.select(3)


def test_a_sources_log_may_run_ahead_of_the_batch() -> None:
    checkpoint = Checkpoint(1).add("sources/0/2", "sources/0/.2.crc", "sources/1/3.compact")
    assert checkpoint.sources(1) == {"0/0", "0/1", "0/2", "1/3.compact"}


def test_offsets_give_the_position_of_each_source() -> None:
    offsets = b'v1\n{"batchWatermarkMs":0}\n{"logOffset":3}\n-\n{"topic":{"0":17}}'
    assert source_positions(offsets) == {0: '{"logOffset":3}', 2: '{"topic":{"0":17}}'}


@pytest.mark.parametrize("content", [b"v7\n{}\n{}", b"", b"v1"])
def test_offsets_in_an_unknown_format_give_no_position(content: bytes) -> None:
    assert source_positions(content) == {}


def test_batch_numbers_are_distinguished_from_other_names() -> None:
    assert committed_batches(["10", "9", ".9.crc", "9.compact", "x"]) == [9, 10]


def test_an_incomplete_savepoint_is_recognized_by_the_prefix_of_its_files() -> None:
    """Files with other prefixes may belong to someone else, so they would prevent the removal of the savepoint."""
    checkpoint = Checkpoint(3)
    checkpoint.add("timelines", "operators/totals/3", *(f"state/0/0/{version}.delta" for version in range(1, 5)))
    checkpoint.add(*(f"sink:_spark_metadata/{batch}" for batch in range(4)))

    paths = [*checkpoint.select(3), SINK_LOCATION]

    assert {file_name(path).parts[0] for path in paths} == QUERY_ENTRIES
