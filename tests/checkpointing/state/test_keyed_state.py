"""Keyed state in real queries: correct over batches and after a restore elsewhere, removed when it expires."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import Row, functions
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

from checkpointing.state import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessContext,
    RuntimeContext,
    StateTtlConfig,
    TimeMode,
    UpdateType,
    process_keyed,
)
from checkpointing.state.keyed import TimerService, _Processor, states_of
from checkpointing.state.keyed_states import StoredType

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

cloudpickle.register_pickle_by_value(sys.modules[__name__])

MEAN = StructType([StructField("sum", DoubleType()), StructField("count", LongType())])


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: float, accumulator: Any) -> tuple[float, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> float:
        return accumulator[0] / accumulator[1]


class EveryState(KeyedProcessFunction):
    """A function that stores every number in each kind of state. Lines are `key number`."""

    def open(self, context: RuntimeContext) -> None:
        self.total = context.value_state("total", LongType())
        self.all = context.list_state("all", IntegerType())
        self.times = context.map_state("times", StringType(), LongType())
        self.longest = context.reducing_state("longest", StringType(), lambda a, b: max(a, b, key=len))
        self.mean = context.aggregating_state("mean", MEAN, Mean())

    def process(self, key: str, rows: Iterator[Row], context: ProcessContext) -> Iterator[Any]:
        numbers = [int(row.number) for row in rows]
        self.total.update((self.total.value() or 0) + sum(numbers))
        self.all.add(numbers[0])
        self.all.add_all(numbers[1:])
        for number in numbers:
            self.times.put(str(number), (self.times.get(str(number)) or 0) + 1)
            self.longest.add("x" * number)
        self.mean.add_all(numbers)
        if 99 in numbers:
            self.forget()
        yield (
            key,
            self.total.value() or 0,
            self.all.get(),
            dict(self.times.items()),
            self.longest.get(),
            self.mean.get(),
        )

    def forget(self) -> None:
        self.total.update(None)
        self.all.update([])
        assert self.times.contains("99")
        assert not self.times.is_empty()
        for number in self.times.keys():  # noqa: SIM118 - no dictionary
            self.times.remove(number)
        self.times.remove("never there")
        assert self.times.is_empty()
        self.longest.clear()
        self.mean.clear()


OUTPUT = "key string, total long, all array<int>, times map<string,long>, longest string, mean double"


def numbered(queries: Any) -> Any:
    return queries.lines().select(
        functions.split_part("value", functions.lit(" "), functions.lit(1)).alias("key"),
        functions.split_part("value", functions.lit(" "), functions.lit(2)).alias("number"),
    )


def collecting(frame: Any, rows: dict[str, Any]) -> Any:
    writer = frame.writeStream.outputMode("update")
    return writer.foreachBatch(lambda f, _: rows.update({row[0]: tuple(row)[1:] for row in f.collect()}))


def expected(numbers: list[int]) -> tuple[Any, ...]:
    times = {str(number): count for number, count in Counter(numbers).items()}
    return sum(numbers), numbers, times, "x" * max(numbers), sum(numbers) / len(numbers)


def test_every_kind_of_state_is_right_over_batches_and_after_a_restore_without_the_old_directory(queries: Any) -> None:
    rows: dict[str, Any] = {}

    def writer() -> Any:
        return collecting(process_keyed(numbered(queries).groupBy("key"), EveryState(), OUTPUT), rows)

    queries.feed(["a 1", "b 5", "a 1"])
    queries.feed(["a 3"])
    queries.run(writer(), "first")
    assert rows == {"a": expected([1, 1, 3]), "b": expected([5])}
    checkpoint = queries.snapshot(writer(), "first")
    shutil.rmtree(queries.root / "first")  # as after a move to another machine

    queries.restore(checkpoint, writer(), "again")
    queries.feed(["b 2", "a 99"])
    queries.feed(["a 7"])
    queries.run(writer(), "again")
    assert rows == {"a": expected([7]), "b": expected([5, 2])}


LONG = timedelta(hours=1)


class Expiring(KeyedProcessFunction):
    """A function that writes every state when it reads `write`, and always outputs all states."""

    def __init__(self, ttl: timedelta) -> None:
        self.ttl = ttl

    def open(self, context: RuntimeContext) -> None:
        short = StateTtlConfig(self.ttl)
        self.value = context.value_state("value", LongType(), short)
        self.list = context.list_state("list", LongType(), short)
        self.map = context.map_state("map", StringType(), LongType(), short)
        self.sum = context.reducing_state("sum", LongType(), lambda a, b: a + b, short)
        self.written = context.value_state("written", LongType(), StateTtlConfig(LONG))
        self.read = context.value_state("read", LongType(), StateTtlConfig(LONG, UpdateType.ON_READ_AND_WRITE))
        self.kept = context.value_state("kept", LongType())

    def process(self, key: str, rows: Iterator[Row], context: ProcessContext) -> Iterator[Any]:
        if any(row.number == "write" for row in rows):
            self.value.update(1)
            self.list.add_all([1, 2])
            self.map.put("a", 1)
            self.sum.add(4)
            for state in (self.written, self.read, self.kept):
                state.update(5)
        left = [self.value.value(), self.list.get(), dict(self.map.items()), self.sum.get()]
        kept = [self.written.value(), self.read.value(), self.kept.value()]
        yield {"key": key, "left": str(left), "kept": str(kept)}


@pytest.mark.nightly
def test_state_expires_after_its_ttl_which_reads_extend_if_configured(
    queries: Any, spark: Any, eventually: Any
) -> None:
    rows: dict[str, Any] = {}
    expiring = Expiring(timedelta(seconds=1))
    frame = process_keyed(numbered(queries).groupBy("key"), expiring, "key string, left string, kept string")
    query = queries.start(collecting(frame, rows).trigger(processingTime="200 milliseconds"), "first")

    def after(word: str) -> Any:
        rows.clear()
        queries.feed([f"k {word}"])
        eventually(f"the batch of {word}", lambda: "k" in rows or not query.isActive)
        assert query.isActive, query.exception()
        return rows["k"]

    assert after("write") == ("[1, [1, 2], {'a': 1}, 4]", "[5, 5, 5]")
    eventually("expiry", lambda: after("look") == ("[None, [], {}, None]", "[5, 5, 5]"))
    after("commit")  # waits for the previous batch's commit
    query.stop()

    def expires_at(name: str) -> int:
        reader = spark.read.format("statestore").option("stateVarName", name)
        [row] = reader.load(str(queries.root / "first")).collect()
        return int(row.value.ttlExpirationMs)

    assert expires_at("read") >= expires_at("written") + 1000


class Reminder(KeyedProcessFunction):
    """A function that sets a timer for every number, in seconds of event time."""

    def open(self, context: RuntimeContext) -> None:
        self.seen = context.value_state("seen", LongType())

    def process(self, key: str, rows: Iterator[Row], context: ProcessContext) -> None:
        timers = context.timer_service()
        for row in rows:
            self.seen.update((self.seen.value() or 0) + 1)
            timers.register_event_time_timer(int(row.at.timestamp() * 1000) + 5000)
        timers.register_event_time_timer(1)
        timers.delete_event_time_timer(1)
        assert 1 not in timers.timers()

    def on_timer(self, key: str, timestamp: int, context: ProcessContext) -> Iterator[Any]:
        assert context.timer_service().current_watermark() >= timestamp
        yield f"{key} {timestamp}", self.seen.value()


@pytest.mark.nightly
def test_event_time_timers_fire_when_the_watermark_has_passed_also_after_a_restore(queries: Any) -> None:
    rows: dict[str, Any] = {}

    def writer() -> Any:
        at = functions.col("number").cast("long").cast("timestamp")
        frame = numbered(queries).select("key", at.alias("at")).withWatermark("at", "0 seconds")
        timed = process_keyed(
            frame.groupBy("key"), Reminder(), "timer string, seen long", time_mode=TimeMode.EVENT_TIME
        )
        return collecting(timed, rows)

    queries.feed(["a 100", "b 101"])
    queries.run(writer(), "first")
    assert rows == {}
    checkpoint = queries.snapshot(writer(), "first")
    queries.restore(checkpoint, writer(), "again")
    queries.feed(["c 200"])
    queries.run(writer(), "again")
    assert rows == {"a 105000": (1,), "b 106000": (1,)}


# --- invalid programs ---


class Opening(KeyedProcessFunction):
    """A function whose `open` is given by the test."""

    def __init__(self, opening: Any) -> None:
        self.opening = opening

    def open(self, context: RuntimeContext) -> None:
        self.opening(context)

    def process(self, key: Any, rows: Any, context: ProcessContext) -> None:
        return None


@pytest.mark.parametrize(
    ("opening", "problem"),
    [
        (lambda c: [c.value_state("a", LongType()), c.list_state("a", LongType())], "two states .* 'a'"),
        (lambda c: c.value_state("", LongType()), "'' is not allowed"),
        (lambda c: c.value_state("$ttl", LongType()), r"'\$ttl' is not allowed"),
        (lambda c: c.value_state("a", "long"), r"state 'a': a Spark type such as LongType\(\) is expected, not 'long'"),
        (lambda c: c.map_state("a", str, LongType()), "state 'a', key: a Spark type"),
        (lambda c: c.value_state("a", LongType(), 5), "state 'a': ttl is a StateTtlConfig, not 5"),
    ],
)
def test_a_state_that_cannot_be_is_refused_before_the_query_exists(opening: Any, problem: str) -> None:
    with pytest.raises((ValueError, TypeError), match=problem):
        states_of(Opening(opening))


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(microseconds=1), -timedelta(days=1), 5])
def test_a_time_to_live_below_a_millisecond_is_refused(ttl: Any) -> None:
    with pytest.raises(ValueError, match="ttl: a timedelta of at least a millisecond"):
        StateTtlConfig(ttl)


def test_event_time_has_no_time_to_live(spark: Any) -> None:
    with pytest.raises(ValueError, match="state 'value' has a time to live, which EVENT_TIME does not support"):
        process_keyed(spark.range(1).groupBy("id"), Expiring(LONG), "key long", time_mode=TimeMode.EVENT_TIME)


class Careless(KeyedProcessFunction):
    def open(self, context: RuntimeContext) -> None:
        self.total = context.value_state("total", LongType())

    def process(self, key: str, rows: Iterator[Row], context: ProcessContext) -> None:
        self.total.update("text")


def test_a_value_of_another_type_ends_the_query_with_the_states_name(queries: Any) -> None:
    frame = process_keyed(numbered(queries).groupBy("key"), Careless(), "key string, total long")
    queries.feed(["a 1"])
    with pytest.raises(Exception, match=r"(?s)state 'total'.*LongType.*text"):
        queries.run(collecting(frame, {}), "first")


@pytest.mark.parametrize("value", ["text", 1.5, None, [1]])
def test_a_value_that_does_not_fit_is_refused_before_spark_sees_it(value: Any) -> None:
    with pytest.raises(PySparkException, match="state 'total'"):
        StoredType(LongType(), "state 'total'").stored(value)


def test_a_struct_accepts_tuples_rows_and_dictionaries() -> None:
    stored = StoredType(MEAN, "state 'mean'")
    given = [(1.5, 2), Row(sum=1.5, count=2), {"count": 2, "sum": 1.5}]
    assert [stored.stored(each) for each in given] == [(1.5, 2)] * 3


@pytest.mark.parametrize(
    "result", [Row(key="a", totl=1), {"key": "a"}, {"key": "a", "total": 1, "more": 2}, ("a",), ("a", 1, 2), "ab"]
)
def test_a_row_that_does_not_fit_the_output_is_refused_with_its_columns(result: Any) -> None:
    processor = _Processor(Careless(), ("key", "total"), TimeMode.NONE)
    with pytest.raises(TypeError, match=r"Careless returned .*; a row must have the columns key, total"):
        list(processor._rows([result]))


def test_rows_tuples_and_dictionaries_give_the_same_output() -> None:
    processor = _Processor(Careless(), ("key", "total"), TimeMode.NONE)
    given = [Row(total=1, key="a"), ("a", 1), {"key": "a", "total": 1}]
    assert [row.asDict() for row in processor._rows(given)] == [{"key": "a", "total": 1}] * 3


def test_timers_of_another_clock_are_refused() -> None:
    timers = TimerService(None, None, TimeMode.EVENT_TIME)
    with pytest.raises(ValueError, match="runs with time_mode EVENT_TIME; this call needs PROCESSING_TIME"):
        timers.register_processing_time_timer(1)
