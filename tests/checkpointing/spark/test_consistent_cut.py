"""Two queries, one of which reads the other's output, with real Spark. After a restore each word is counted once."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from checkpointing.checkpoint_location.layout import source_positions
from checkpointing.jobs.launching.session_settings import WorkDirectory
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.messages import ChannelKind, CheckpointKind
from checkpointing.spark.job import plan_queries
from checkpointing.spark.program import ProgramError
from checkpointing.spark.running_query import PlannedQuery, RunningQuery
from checkpointing.spark.starting_state import NoState
from tests.checkpointing.spark import taking
from tests.checkpointing.spark.topic_log import Topic, TopicLog
from tests.profile import PROFILE, SEED

SNAPSHOTS = PROFILE.snapshots_under_load
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900 + 60 * SNAPSHOTS)]
FILES_BETWEEN = (0, 20)
WORDS = [f"word-{number}" for number in range(40)]


@pytest.fixture(scope="module")
def spark(spark: Any) -> Any:
    # Compact logs and remove old entries frequently, as a query that has run for months has done.
    hard = {
        "spark.sql.streaming.fileSource.log.compactInterval": "3",
        "spark.sql.streaming.fileSource.log.cleanupDelay": "1ms",
        "spark.sql.streaming.fileSink.log.compactInterval": "5",
    }
    for name, value in hard.items():
        spark.conf.set(name, value)
    return spark


class Feeder:
    """Writes files of numbered words, some lines twice, until it is stopped; `expected` counts each line once.

    It continues during a checkpoint, but stops 40 files later, so that a slow machine does not restore more than a fast
    one.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        directory.mkdir()
        self.expected: Counter[str] = Counter()
        self.limit = 40
        self._directory = directory
        self._chance = random.Random(seed)
        self.written = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._chance.uniform(0.02, 0.12)):
            if self.written < self.limit:
                self.write(self._chance.choices(WORDS, k=20))

    def write(self, words: Sequence[str]) -> None:
        number = self.written + 1
        lines = [f"{number}-{place} {word}" for place, word in enumerate(words)]
        self.expected.update(words)
        partial = self._directory / f".{number}"
        partial.write_text("\n".join(lines + lines[:3]))
        partial.rename(self._directory / f"{number:05}.txt")
        self.written = number

    def write_on(self, files: int, eventually: Callable[..., object]) -> None:
        """Wait until `files` more files have been written."""
        goal = self.written + files
        self.limit = goal + 40
        eventually(f"{files} more files", lambda: self.written >= goal)


@dataclass
class Chain:
    """Two queries: `clean` drops duplicates and writes files, which `count` reads and counts.

    `counts` has the newest counts.
    """

    spark: Any
    root: Path
    files_per_batch: int = 3
    count_every: str = "0 seconds"
    counts: dict[str, int] = field(default_factory=dict)

    def planned(self, name: str) -> list[PlannedQuery]:
        work = WorkDirectory(self.root / name)
        return plan_queries([self._count(), self._clean()], work, NoState("job"), {})

    def start(self, name: str, checkpoint: CompletedCheckpoint | None = None) -> list[RunningQuery]:
        planned = self.planned(name)
        if checkpoint is not None:
            assert taking.restored_batches(taking.restore(checkpoint, planned)) == checkpoint.batches
        queries = [RunningQuery(query) for query in planned]
        for query in queries:
            query.start()
        return queries

    def _once(self) -> Any:
        from pyspark.sql.functions import split

        lines = self.spark.readStream.format("text").option("maxFilesPerTrigger", self.files_per_batch)
        parts = split("value", " ")
        frame = lines.load(str(self.root / "in")).select(parts[0].alias("id"), parts[1].alias("word"))
        return frame.dropDuplicates(["id"])

    def _clean(self) -> Any:
        return self._once().writeStream.format("parquet").option("path", str(self.root / "mid")).queryName("clean")

    def _words(self) -> Any:
        (self.root / "mid").mkdir(exist_ok=True)
        return self.spark.readStream.format("parquet").schema("id string, word string").load(str(self.root / "mid"))

    def _count(self) -> Any:
        def keep(frame: Any, batch: int) -> None:
            self.counts.update({row["word"]: row["count"] for row in frame.collect()})

        counts = self._words().groupBy("word").count()
        writer = counts.writeStream.outputMode("update").queryName("count").foreachBatch(keep)
        return writer.trigger(processingTime=self.count_every)


@dataclass
class ChainOverTopic(Chain):
    """The same two queries, connected by a topic with two partitions, as with Kafka."""

    def __post_init__(self) -> None:
        self.spark.dataSource.register(TopicLog)
        self.topic.add_partitions(2)

    @property
    def topic(self) -> Topic:
        return Topic(self.root / "mid")

    def files_read_by_clean(self, snapshot: CompletedCheckpoint) -> set[int]:
        """Return the numbers of the files that `clean` has read in this snapshot."""
        [_, clean] = planned = self.planned(f"at-{snapshot.checkpoint_id}")
        batch = taking.restore(snapshot, planned)["clean"].number
        last = json.loads(source_positions((clean.location / "offsets" / str(batch)).read_bytes())[0])["logOffset"]
        logs = (clean.location / "sources" / "0").glob("[0-9]*")
        entries = [json.loads(line) for log in logs for line in log.read_text().splitlines()[1:]]
        return {int(Path(entry["path"]).stem) for entry in entries if entry["batchId"] <= last}

    def _clean(self) -> Any:
        from pyspark.sql.functions import concat_ws, length

        value = concat_ws(" ", "id", "word").alias("value")
        rows = self._once().select((length("word") % 2).alias("partition"), value)
        return rows.writeStream.format("topiclog").option("topic", str(self.topic.directory)).queryName("clean")

    def _words(self) -> Any:
        from pyspark.sql.functions import split

        values = self.spark.readStream.format("topiclog").option("topic", str(self.topic.directory)).load()
        return values.select(split("value", " ")[1].alias("word"))


def finish(chain: Chain, queries: list[RunningQuery]) -> dict[str, int]:
    """Let both queries process all input, and stop them. Return the counts."""
    count, clean = queries
    for query in (clean, count):
        query._query.processAllAvailable()
    for query in queries:
        query.stop()
    return chain.counts


@pytest.mark.nightly
def test_every_snapshot_under_load_restores_to_each_word_exactly_once(
    spark: Any, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    chance = random.Random(SEED)
    chain = Chain(spark, tmp_path)
    snapshots = []
    with Feeder(tmp_path / "in", SEED) as feeder:
        queries = chain.start("first")
        agent = taking.Taking(queries, tmp_path)
        for number in range(1, SNAPSHOTS + 1):
            agent.trigger(number)
            snapshots.append(agent.complete(number, eventually))
            feeder.write_on(chance.randint(*FILES_BETWEEN), eventually)
    for query in queries:
        query.stop()
    agent.agent.close()
    feeder.write(WORDS)  # so that each restored query writes the count of every word again
    for snapshot in snapshots:
        again = Chain(spark, tmp_path, files_per_batch=chance.choice([20, 200]))
        counts = finish(again, again.start(f"again-{snapshot.checkpoint_id}", snapshot))
        assert counts == feeder.expected, f"snapshot {snapshot.checkpoint_id} of {snapshot.batches}"


@pytest.mark.nightly
def test_a_consumer_that_begins_late_is_not_ahead_of_its_producer(
    spark: Any, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    """The checkpoint is triggered before the queries begin. The first batch of count reads many batches of clean."""
    chain = Chain(spark, tmp_path, files_per_batch=1, count_every="4 seconds")
    with Feeder(tmp_path / "in", 3) as feeder:
        queries = chain.start("first")
        agent = taking.Taking(queries, tmp_path)
        agent.trigger(1)
        snapshot = agent.complete(1, eventually)
    for query in queries:
        query.stop()
    agent.agent.close()
    feeder.write(WORDS)
    again = Chain(spark, tmp_path, files_per_batch=200)
    assert finish(again, again.start("again", snapshot)) == feeder.expected


def test_a_stop_with_savepoint_under_load_names_the_channels_and_restores_exactly(
    spark: Any, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    chain = Chain(spark, tmp_path)
    with Feeder(tmp_path / "in", 2) as feeder:
        queries = chain.start("first")
        eventually("both have committed", lambda: all(query.files.last_commit() is not None for query in queries))
        agent = taking.Taking(queries, tmp_path)
        agent.trigger(1, CheckpointKind.SYNC_SAVEPOINT)
        savepoint = agent.complete(1, eventually)
    agent.agent.close()
    assert not any(query.is_active for query in queries)
    check_channel(savepoint, ChannelKind.FILES, tmp_path / "mid", '{"logOffset":')
    feeder.write(WORDS)
    again = Chain(spark, tmp_path, files_per_batch=20)
    assert finish(again, again.start("again", savepoint)) == feeder.expected


@pytest.mark.nightly
def test_no_snapshot_over_a_topic_has_a_consumer_ahead_and_a_stop_restores_exactly(
    spark: Any, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    """The checkpoint is triggered before the consumer begins. Its first batch reads what the producer wrote since then.

    A snapshot of the producer at the trigger would be behind the consumer. Values in a topic cannot be removed. After a
    stop the topic has no values from after the producer's snapshot, so the restore is exact.
    """
    chain = ChainOverTopic(spark, tmp_path)
    with Feeder(tmp_path / "in", 4) as feeder:
        count, clean = queries = [_LateQuery(query) for query in chain.planned("first")]
        agent = taking.Taking(queries, tmp_path)
        clean.start()
        eventually("the producer has committed", lambda: clean.files.last_commit() is not None)
        agent.trigger(1)
        begun = clean.files.next_boundary()
        assert begun is not None
        feeder.write_on(6, eventually)
        eventually("it has gone on", lambda: (clean.files.last_commit() or 0) > begun)
        count.start()
        checkpoint = agent.complete(1, eventually)
        agent.trigger(2, CheckpointKind.SYNC_SAVEPOINT)
        savepoint = agent.complete(2, eventually)
    agent.agent.close()
    for snapshot in (checkpoint, savepoint):
        check_channel(snapshot, ChannelKind.TOPIC, tmp_path / "mid", '{"mid": {"0": ')
        consumed = chain.topic.until(json.loads(str(snapshot.channels[0].position))["mid"])
        assert consumed, "it had read nothing"
        assert {int(value.partition("-")[0]) for value in consumed} <= chain.files_read_by_clean(snapshot)
    feeder.write(WORDS)
    again = ChainOverTopic(spark, tmp_path, files_per_batch=20)
    assert finish(again, again.start("again", savepoint)) == feeder.expected


class _LateQuery(RunningQuery):
    """A query for which a checkpoint may be triggered before it starts. Until then it counts as active."""

    @property
    def is_active(self) -> bool:
        return self.spark_query is None or super().is_active

    def doing(self) -> str:
        return "" if self.spark_query is None else super().doing()


def check_channel(snapshot: CompletedCheckpoint, kind: ChannelKind, location: Path, position: str) -> None:
    """Assert that the manifest has the channel from clean to count, with a position that begins with `position`."""
    [channel] = snapshot.channels
    assert (channel.producer, channel.consumer, channel.source) == ("clean", "count", 0)
    assert (channel.kind, channel.location) == (kind, str(location))
    assert str(channel.position).startswith(position)


def test_queries_in_a_circle_are_refused_before_anything_runs(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "mid").mkdir()
    words = spark.readStream.format("text").load(str(tmp_path / "mid"))
    writer = words.writeStream.format("text").option("path", str(tmp_path / "mid")).queryName("echo")
    with pytest.raises(ProgramError, match="in a circle: echo → echo"):
        plan_queries([writer], WorkDirectory(tmp_path / "work"), NoState("job"), {})
