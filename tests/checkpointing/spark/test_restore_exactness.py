"""Snapshots of a running query and their restores, with real Spark, in every layout of the state store."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from checkpointing.checkpoint_location.layout import source_positions
from checkpointing.model.messages import VertexKind
from checkpointing.spark import failure
from checkpointing.spark.running_query import RunningQuery
from checkpointing.storage import SnapshotIncomplete, state_file_path, verify
from tests.checkpointing.spark.bench import DRIVERS_LAYOUT, LAYOUTS, OTHER_LAYOUTS, STATE, Bench, word, write_input
from tests.checkpointing.spark.topic_log import Topic, TopicLog
from tests.spark_session import PARTITIONS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def spark(spark: Any) -> Any:
    spark.conf.set(f"{STATE}minDeltasForSnapshot", "2")
    return spark


@pytest.fixture(params=[DRIVERS_LAYOUT, *(pytest.param(each, marks=pytest.mark.nightly) for each in OTHER_LAYOUTS)])
def bench(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Bench:
    changelog = {"rocksdb.changelogCheckpointing.enabled": "true"}
    return Bench(spark, tmp_path, {**changelog, **LAYOUTS[request.param]})


@pytest.fixture
def format_2(spark: Any, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path, LAYOUTS["rocksdb format 2"])


def counting(bench: Bench, counts: dict[str, int]) -> Any:
    def collect(frame: Any, batch: int) -> None:
        counts.update({row["value"]: row["count"] for row in frame.collect()})

    return bench.lines().groupBy("value").count().writeStream.outputMode("update").foreachBatch(collect)


def whole_everywhere(query: RunningQuery) -> bool:
    """Return whether every partition has a whole state. Otherwise it has only changelogs, which may be large."""
    state = query.planned.location / "state" / "0"
    return all([*(state / str(partition)).glob("*.zip")] for partition in range(PARTITIONS))


def test_a_query_restored_next_to_its_abandoned_batches_counts_every_word_once(bench: Bench, eventually: Any) -> None:
    counts: dict[str, int] = {}
    first = RunningQuery(bench.planned(counting(bench, counts), bench.root / "first"))
    first.start()
    for _ in range(6):
        bench.feed()
    bench.run_all(first)
    state = first.planned.location / "state"
    eventually("a whole state on disk", lambda: [*state.rglob("*.zip"), *state.rglob("*.snapshot")])
    bench.feed()
    bench.run_all(first)
    at_checkpoint = dict(counts)
    checkpoint = bench.snapshot(first)
    bench.feed()
    bench.feed()
    bench.run_all(first)
    first.stop()

    counts.clear()
    counts.update(at_checkpoint)
    again = RunningQuery(bench.planned(counting(bench, counts), bench.root / "again"))
    assert bench.restore(checkpoint, again.planned).restored == 6
    again.start()
    bench.feed()
    bench.run_all(again)
    again.stop()

    assert counts == bench.expected
    assert verify(checkpoint.location, deep=True).files == checkpoint.files, "the restored query changed the snapshot"


@pytest.mark.nightly
@pytest.mark.parametrize("ahead", [0, 1, 8])
def test_the_log_of_a_source_is_restored_from_its_uncompacted_entries(format_2: Bench, ahead: int) -> None:
    """The log may be so far ahead that its entries after the batch are only in compacted files."""
    bench, compact_interval = format_2, "spark.sql.streaming.fileSource.log.compactInterval"
    counts: dict[str, int] = {}
    bench.spark.conf.set(compact_interval, "3")
    first = RunningQuery(bench.planned(counting(bench, counts), bench.root / "first"))
    first.start()
    at_checkpoint: dict[str, int] = {}
    for number in range(13):
        bench.feed()
        bench.run_all(first)
        if number == 12 - ahead:
            at_checkpoint = dict(counts)
    checkpoint = bench.snapshot(first, batch=12 - ahead)
    first.stop()
    bench.spark.conf.unset(compact_interval)
    log = {file.path.removeprefix("sources/0/") for file in checkpoint.files if file.path.startswith("sources/")}
    assert log == {"8.compact", "9", "10", "11.compact", "12"}

    counts.clear()
    counts.update(at_checkpoint)
    again = RunningQuery(bench.planned(counting(bench, counts), bench.root / "again"))
    assert bench.restore(checkpoint, again.planned).restored == 12 - ahead
    again.start()
    for _ in range(5):
        bench.feed()
        bench.run_all(again)
    again.stop()

    assert counts == bench.expected
    compacted = {path.stem for path in (bench.root / "again" / "sources" / "0").glob("*.compact")}
    assert compacted == {"8", "11", "14", "17"}, "another compact interval than before"


@pytest.mark.nightly
def test_two_checkpoints_share_the_large_files_that_both_need(format_2: Bench, eventually: Any) -> None:
    bench = format_2
    query = RunningQuery(bench.planned(counting(bench, {}), bench.root / "first"))
    query.start()
    for _ in range(5):
        bench.feed()
    bench.run_all(query)
    eventually("a whole state of each partition", lambda: whole_everywhere(query))
    first = bench.snapshot(query, 1)
    bench.feed()
    bench.run_all(query)
    second = bench.snapshot(query, 2)
    query.stop()
    shared = [{file.location for file in each.files if file.shared} for each in (first, second)]
    assert shared[0] & shared[1], "nothing was shared"
    assert all(location.startswith("shared/") for location in shared[0] | shared[1])
    pool = {f"shared/{path.name}" for path in Path(str(first.shared_location)).iterdir()}
    assert pool == shared[0] | shared[1]


@pytest.mark.nightly
def test_large_state_is_checked_by_hadoops_crc_files_and_verified_by_its_content(
    format_2: Bench, eventually: Any
) -> None:
    bench = format_2
    query = RunningQuery(bench.planned(counting(bench, {}), bench.root / "first"))
    query.start()
    write_input(bench.input / "many.txt", map(word, range(30_000)))
    for _ in range(4):
        bench.run_all(query)
        bench.feed()
    bench.run_all(query)
    eventually("a whole state of each partition", lambda: whole_everywhere(query))
    checkpoint = bench.snapshot(query)
    query.stop()

    large = [file for file in checkpoint.files if file.size >= 1 << 20]
    assert large, "the state is smaller than was thought"
    assert all(file.path.endswith(".sst") and file.checksum.startswith("crc32-") for file in large)
    assert {len(file.checksum) for file in checkpoint.files if file not in large} == {64}
    assert verify(checkpoint.location, deep=True) == checkpoint

    path = Path(state_file_path(checkpoint, large[0]))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    path.write_bytes(content)
    with pytest.raises(SnapshotIncomplete, match=r"shared/crc32-\w+ differs from what was saved"):
        verify(checkpoint.location, deep=True)


@pytest.mark.nightly
def test_a_file_sink_is_rewound_with_the_query(format_2: Bench) -> None:
    bench, output = format_2, format_2.root / "out"

    def writing() -> Any:
        return bench.lines().writeStream.format("json").option("path", str(output))

    first = RunningQuery(bench.planned(writing(), bench.root / "first"))
    first.start()
    for _ in range(12):  # beyond the compaction of the sink's log
        bench.feed()
    bench.run_all(first)
    checkpoint = bench.snapshot(first)
    bench.feed()
    bench.feed()
    bench.run_all(first)
    first.stop()

    again = RunningQuery(bench.planned(writing().option("maxRecordsPerFile", "50"), bench.root / "again"))
    assert bench.restore(checkpoint, again.planned).restored == 11
    again.start()
    bench.feed()
    bench.run_all(again)
    again.stop()
    rows = bench.spark.read.json(str(output)).collect()
    assert Counter(row["value"] for row in rows) == bench.expected


@pytest.mark.nightly
def test_a_stream_stream_join_is_known_with_its_four_stores(bench: Bench) -> None:
    """Rows in the state wait for their partner, which may arrive only after the restore."""
    from pyspark.sql import functions

    for side in ("left", "right"):
        (bench.root / side).mkdir()

    def side(name: str) -> Any:
        lines = bench.spark.readStream.format("text").load(str(bench.root / name))
        return lines.withColumn("at", functions.lit("2026-01-01").cast("timestamp")).withWatermark("at", "1 hour")

    pairs: list[str] = []

    def joined() -> Any:
        left, right = side("left").alias("l"), side("right").alias("r")
        on = functions.expr("l.value = r.value AND l.at = r.at")
        frame = left.join(right, on).select("l.value")
        return frame.writeStream.foreachBatch(lambda f, _: pairs.extend(row["value"] for row in f.collect()))

    first = RunningQuery(bench.planned(joined(), bench.root / "first"))
    kinds = [vertex.kind for vertex in first.planned.plan.vertices]
    assert kinds == [VertexKind.SOURCE, VertexKind.SOURCE, VertexKind.STATEFUL, VertexKind.SINK]
    first.start()
    write_input(bench.root / "left" / "1.txt", "abc")
    bench.run_all(first)
    checkpoint = bench.snapshot(first)
    write_input(bench.root / "left" / "2.txt", "d")
    bench.run_all(first)
    first.stop()
    assert pairs == []
    again = RunningQuery(bench.planned(joined(), bench.root / "again"))
    bench.restore(checkpoint, again.planned)
    again.start()
    write_input(bench.root / "right" / "1.txt", "abde")
    bench.run_all(again)
    again.stop()
    assert sorted(pairs) == ["a", "b", "d"]


class Times:
    """An input of words with ascending times, with one batch for each `feed`."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._minute = itertools.count()

    def feed(self, words: str, *, minutes: int = 1) -> None:
        number = next(self._minute)
        lines = [f"2026-01-01 {10 + number * minutes // 60}:{number * minutes % 60:02}:00 {word}" for word in words]
        write_input(self._bench.input / f"{number}.txt", lines)

    def frame(self) -> Any:
        from pyspark.sql.functions import substring

        lines = self._bench.lines()
        at, word = substring("value", 1, 19).cast("timestamp"), substring("value", 21, 9)
        return lines.select(at.alias("at"), word.alias("word")).withWatermark("at", "1 minute")


@pytest.mark.nightly
def test_two_stateful_operators_in_a_row_are_restored_together(bench: Bench) -> None:
    """The query drops duplicates, then counts words by window. Each window is written once, when it has ended."""
    from pyspark.sql import functions

    windows: Counter[tuple[str, int]] = Counter()
    times = Times(bench)

    def writer() -> Any:
        once = times.frame().dropDuplicates(["word", "at"])
        counted = once.groupBy(functions.window("at", "2 minutes").alias("window")).count()
        rows = counted.select(functions.col("window.start").cast("string").alias("start"), "count")

        def collect(frame: Any, batch: int) -> None:
            windows.update((row["start"], row["count"]) for row in frame.collect())

        return rows.writeStream.outputMode("append").foreachBatch(collect)

    first = RunningQuery(bench.planned(writer(), bench.root / "first"))
    stateful = [vertex for vertex in first.planned.plan.vertices if vertex.kind is VertexKind.STATEFUL]
    assert [vertex.parallelism for vertex in stateful] == [2, 2]
    first.start()
    for words in ("aab", "abc", "cc"):
        times.feed(words)
        bench.run_all(first)  # write files one by one, because Spark orders files of one millisecond at random
    plan = first.planned.plan
    from_the_top = [plan.by_owner[VertexKind.STATEFUL, index].name for index in plan.stateful_from_the_top]
    assert from_the_top == ["aggregate (stateStoreSave)", "deduplicate (streamingDeduplicate)"]
    assert [each.operatorName for each in first._query.lastProgress.stateOperators] == ["stateStoreSave", "dedupe"]
    checkpoint = bench.snapshot(first)
    at_checkpoint = windows.copy()
    for words in ("xxyz", "y"):
        times.feed(words)
        bench.run_all(first)
    first.stop()
    assert windows != at_checkpoint

    windows.clear()
    windows.update(at_checkpoint)
    again = RunningQuery(bench.planned(writer(), bench.root / "again"))
    bench.restore(checkpoint, again.planned)
    again.start()
    for words in ("zz", "end"):
        bench.run_all(again)
        times.feed(words, minutes=5)
    bench.run_all(again)
    again.stop()
    # Minutes 0 and 1: aab → a, b; abc. 2 and 3: cc → c; xxyz → x, y, z. 4: y. 25: zz → z.
    assert windows == Counter(
        {
            ("2026-01-01 10:00:00", 5): 1,
            ("2026-01-01 10:02:00", 4): 1,
            ("2026-01-01 10:04:00", 1): 1,
            ("2026-01-01 10:24:00", 1): 1,
        }
    )


@pytest.mark.nightly
@pytest.mark.parametrize("layout", ["rocksdb format 2", "rocksdb format 1"])
def test_transform_with_state_continues_from_its_values(spark: Any, tmp_path: Path, layout: str) -> None:
    from pyspark.sql import Row
    from pyspark.sql.streaming import StatefulProcessor

    bench = Bench(spark, tmp_path, {"rocksdb.changelogCheckpointing.enabled": "true", **LAYOUTS[layout]})

    class Counting(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.seen = handle.getValueState("seen", "n long")
            self.last = handle.getListState("last", "word string")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N803 - Spark passes it by name
            found = [row["value"] for row in rows]
            count = (self.seen.get()[0] if self.seen.exists() else 0) + len(found)
            self.seen.update((count,))
            self.last.appendValue((found[-1],))
            yield Row(word=key[0], count=count, batches=sum(1 for _ in self.last.get()))

        def close(self) -> None:
            pass

    counts: dict[str, tuple[int, int]] = {}

    def writer() -> Any:
        grouped = bench.lines().groupBy("value")
        schema = "word string, count long, batches long"
        transformed = grouped.transformWithState(Counting(), schema, outputMode="Update", timeMode="None")

        def collect(frame: Any, batch: int) -> None:
            counts.update({row["word"]: (row["count"], row["batches"]) for row in frame.collect()})

        return transformed.writeStream.outputMode("update").foreachBatch(collect)

    def feed(number: int, words: str) -> None:
        write_input(bench.input / f"{number}.txt", words)

    first = RunningQuery(bench.planned(writer(), bench.root / "first"))
    first.start()
    feed(0, "aab")
    feed(1, "ac")
    bench.run_all(first)
    checkpoint = bench.snapshot(first)
    feed(2, "aaa")
    bench.run_all(first)
    first.stop()
    assert counts == {"a": (6, 3), "b": (1, 1), "c": (1, 1)}
    again = RunningQuery(bench.planned(writer(), bench.root / "again"))
    bench.restore(checkpoint, again.planned)
    again.start()
    feed(3, "abc")
    bench.run_all(again)
    again.stop()
    assert counts == {"a": (7, 4), "b": (2, 2), "c": (2, 2)}


@pytest.mark.nightly
def test_a_source_with_kafka_offsets_continues_from_the_offset_of_each_partition(format_2: Bench) -> None:
    """The source is written in Python. After the checkpoint, one partition has grown, one has not, and one is new."""
    bench, topic = format_2, Topic(format_2.root / "words")
    bench.spark.dataSource.register(TopicLog)
    topic.add_partitions(2)
    counts: dict[tuple[int, str], int] = {}

    def writer() -> Any:
        values = bench.spark.readStream.format("topiclog").option("topic", str(topic.directory)).load()

        def collect(frame: Any, batch: int) -> None:
            counts.update({(row["partition"], row["value"]): row["count"] for row in frame.collect()})

        return values.groupBy("partition", "value").count().writeStream.outputMode("update").foreachBatch(collect)

    first = RunningQuery(bench.planned(writer(), bench.root / "first"))
    topic.append(0, "a", "b", "a")
    topic.append(1, "c")
    first.start()
    bench.run_all(first)
    checkpoint = bench.snapshot(first)
    topic.append(0, "a", "abandoned, and read again")
    topic.add_partitions(3)
    topic.append(2, "new")
    bench.run_all(first)
    first.stop()
    batch = checkpoint.batches["words"]
    assert source_positions((first.planned.location / "offsets" / str(batch)).read_bytes()) == {
        0: '{"words": {"0": 3, "1": 1}}'
    }

    counts.clear()
    again = RunningQuery(bench.planned(writer(), bench.root / "again"))
    assert bench.restore(checkpoint, again.planned).restored == batch
    topic.append(2, "new", "newer")
    again.start()
    bench.run_all(again)
    again.stop()

    assert counts == {(0, "a"): 3, (0, "abandoned, and read again"): 1, (2, "new"): 2, (2, "newer"): 1}


def test_a_path_that_cannot_be_read_is_named(spark: Any) -> None:
    with pytest.raises(AnalysisException) as raised:
        spark.readStream.format("text").load("/does/not/exist").writeStream.format("noop")
    info = failure.of_exception(raised.value, 1)
    assert info.name == "AnalysisException"
    assert info.message == "[PATH_NOT_FOUND] Path does not exist: /does/not/exist."
