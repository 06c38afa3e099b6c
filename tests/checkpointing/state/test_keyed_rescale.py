"""Rescaling of keyed state is exact, for every kind of state, its time to live and its timers."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import Row, functions
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from checkpointing.spark.plan import explain, query_plan, sink_of, writer_options
from checkpointing.spark.rescale import rescale
from checkpointing.spark.staging import QueryFiles
from checkpointing.state import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessContext,
    RuntimeContext,
    StateTtlConfig,
    TimeMode,
    process_keyed,
)

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]

cloudpickle.register_pickle_by_value(sys.modules[__name__])

MEAN = StructType([StructField("sum", DoubleType()), StructField("count", LongType())])
KEYS = [f"k{number}" for number in range(8)]
BRIEF = StateTtlConfig(timedelta(seconds=30))  # long enough for reads before the expiry, even on a busy machine
LASTING = StateTtlConfig(timedelta(hours=1))
FAR = 4_000_000_000_000  # a time in the far future


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: float, accumulator: Any) -> tuple[float, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> float:
        return accumulator[0] / accumulator[1]


class EveryKind(KeyedProcessFunction):
    def open(self, context: RuntimeContext) -> None:
        self.total = context.value_state("total", LongType())
        self.all = context.list_state("all", LongType())
        self.times = context.map_state("times", StringType(), LongType())
        self.largest = context.reducing_state("largest", LongType(), max)
        self.mean = context.aggregating_state("mean", MEAN, Mean())
        self.lasting = context.value_state("lasting", LongType(), LASTING)
        self.lasting_list = context.list_state("lasting_list", LongType(), LASTING)
        self.lasting_map = context.map_state("lasting_map", StringType(), LongType(), LASTING)
        self.brief = context.value_state("brief", LongType(), BRIEF)
        self.brief_list = context.list_state("brief_list", LongType(), BRIEF)
        self.brief_map = context.map_state("brief_map", StringType(), LongType(), BRIEF)

    def process(self, key: str, rows: Iterator[Row], context: ProcessContext) -> Iterator[Any]:
        timers = context.timer_service()
        for number in (int(row.number) for row in rows):
            self.total.update((self.total.value() or 0) + number)
            self.lasting.update((self.lasting.value() or 0) + number)
            for numbers in (self.all, self.lasting_list):
                numbers.add(number)
            for times in (self.times, self.lasting_map):
                times.put(str(number), (times.get(str(number)) or 0) + 1)
            self.largest.add(number)
            self.mean.add(number)
            if number < 10:
                self.brief.update(number)
                self.brief_list.add(number)
                self.brief_map.put("n", number)
            timers.register_processing_time_timer(FAR + number)
        values = [self.total.value(), self.all.get(), dict(self.times.items()), self.largest.get(), self.mean.get()]
        lasting = [self.lasting.value(), self.lasting_list.get(), dict(self.lasting_map.items())]
        brief = [self.brief.value(), self.brief_list.get(), dict(self.brief_map.items())]
        yield key, json.dumps([*values, *lasting, sorted(timers.timers()), brief])


PLAIN = ("total", "all", "times", "largest", "mean", "lasting", "lasting_list", "lasting_map")
EXPIRING = ("brief", "brief_list", "brief_map")


def expected(numbers: list[int]) -> list[Any]:
    times = {str(number): count for number, count in Counter(numbers).items()}
    plain = [sum(numbers), numbers, times, max(numbers), sum(numbers) / len(numbers)]
    return [*plain, sum(numbers), numbers, times, sorted(FAR + number for number in numbers)]


def numbered(queries: Any) -> Any:
    return queries.lines().select(
        functions.split_part("value", functions.lit(" "), functions.lit(1)).alias("key"),
        functions.split_part("value", functions.lit(" "), functions.lit(2)).alias("number"),
    )


def moved(queries: Any, checkpoint: Any, writer: Any, location: str, partitions: int) -> None:
    """Restore the checkpoint to `location` and rescale it, as a driver does."""
    batch = queries.restore(checkpoint, writer, location)
    plan = query_plan("words", explain(writer), sink_of(writer, writer_options(writer)), {})
    assert rescale(queries.spark, QueryFiles(plan, queries.root / location, None), partitions) == batch + 1


@pytest.fixture
def on(spark: Any) -> Iterator[Any]:
    """Yield a function that sets the number of partitions of the next queries."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    yield lambda partitions: spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    spark.conf.set("spark.sql.shuffle.partitions", before)


def test_every_kind_of_keyed_state_with_its_time_to_live_and_timers_moves_exactly(
    queries: Any, on: Any, eventually: Any
) -> None:
    seen: dict[str, list[Any]] = {}

    def writer() -> Any:
        frame = process_keyed(numbered(queries).groupBy("key"), EveryKind(), "key string, states string")
        collected = frame.writeStream.outputMode("update").trigger(processingTime="100 milliseconds")
        return collected.foreachBatch(lambda f, _: seen.update({r.key: json.loads(r.states) for r in f.collect()}))

    def stored(location: str, name: str) -> Counter[str]:
        """Return the rows of a state variable, without their partition."""
        reader = queries.spark.read.format("statestore")
        reader = (
            reader.option("readRegisteredTimers", "true") if name == "timers" else reader.option("stateVarName", name)
        )
        rows = reader.load(str(queries.root / location)).drop("partition_id").collect()
        return Counter(json.dumps(row.asDict(recursive=True), sort_keys=True) for row in rows)

    def run_on(location: str, number: int) -> dict[str, list[Any]]:
        seen.clear()
        query = queries.start(writer(), location)
        queries.feed([f"{key} {number}" for key in KEYS])
        eventually(f"the batch of {number}", lambda: set(seen) == set(KEYS) or not query.isActive)
        assert query.isActive, query.exception()
        found, committed = dict(seen), queries.last_commit(location)
        eventually("its commit", lambda: queries.last_commit(location) > committed)
        if number > 10:  # the removal needs an index, which must be rescaled, too
            eventually("what expired is removed", lambda: not any(stored(location, name) for name in EXPIRING))
        query.stop()
        return found

    on(3)
    assert all(states[:-1] == expected([1]) for states in run_on("first", 1).values())
    checkpoint = queries.snapshot(writer(), "first")
    before = {name: stored("first", name) for name in (*PLAIN, *EXPIRING, "timers")}
    assert all(before.values())
    for partitions in (2, 5):
        on(partitions)
        moved(queries, checkpoint, writer(), f"on@{partitions}", partitions)
        for name, rows in before.items():
            assert stored(f"on@{partitions}", name) == rows, name
    for key, states in run_on("on@5", 20).items():
        assert states[:-1] == expected([1, 20]), key


class Reminder(KeyedProcessFunction):
    """A function that sets a timer for every number, in seconds of event time."""

    def open(self, context: RuntimeContext) -> None:
        self.seen = context.value_state("seen", LongType())

    def process(self, key: str, rows: Iterator[Row], context: ProcessContext) -> None:
        for row in rows:
            self.seen.update((self.seen.value() or 0) + 1)
            context.timer_service().register_event_time_timer(int(row.at.timestamp() * 1000) + 50_000)

    def on_timer(self, key: str, timestamp: int, context: ProcessContext) -> Iterator[Any]:
        yield f"{key} {timestamp}", self.seen.value()


def test_each_event_time_timer_fires_once_on_the_partition_that_its_key_moved_to(queries: Any, on: Any) -> None:
    fired: Counter[tuple[str, int]] = Counter()

    def writer() -> Any:
        at = functions.col("number").cast("long").cast("timestamp")
        frame = numbered(queries).select("key", at.alias("at")).withWatermark("at", "0 seconds")
        timed = process_keyed(
            frame.groupBy("key"), Reminder(), "timer string, seen long", time_mode=TimeMode.EVENT_TIME
        )
        return timed.writeStream.outputMode("update").foreachBatch(
            lambda f, _: fired.update(tuple(row) for row in f.collect())
        )

    on(4)
    queries.feed([f"{key} {100 + number}" for number, key in enumerate(KEYS)])
    queries.run(writer(), "first")
    assert not fired
    checkpoint = queries.snapshot(writer(), "first")
    for partitions in (7, 2):
        on(partitions)
        fired.clear()
        moved(queries, checkpoint, writer(), f"on@{partitions}", partitions)
        queries.feed(["late 90", "z 300"])
        queries.run(writer(), f"on@{partitions}")
        assert fired == Counter((f"{key} {150_000 + number * 1000}", 1) for number, key in enumerate(KEYS))
