"""Reading state from snapshots of real queries: every kind of operator, differences, and errors."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pyspark import cloudpickle
from pyspark.sql import Row, functions
from pyspark.sql.types import LongType, StringType, StructField, StructType

from checkpointing.model.messages import CheckpointKind
from checkpointing.state import (
    KeyedProcessFunction,
    ProcessContext,
    RuntimeContext,
    StateTtlConfig,
    TimeMode,
    process_keyed,
    with_operator_state,
)
from checkpointing.state_reading.contents import StateView, ViewKind, contents_of
from checkpointing.state_reading.difference import Change, ChangedKey, state_difference
from checkpointing.state_reading.reading import (
    NoSuchState,
    StateFilter,
    StateRow,
    StateUnreadable,
    ViewReference,
    read_state,
    state_sizes,
)
from checkpointing.storage import (
    MetadataForeign,
    MetadataFromNewerVersion,
    MetadataMissing,
    SnapshotIncomplete,
    files_for,
    state_file_path,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

cloudpickle.register_pickle_by_value(sys.modules[__name__])

ANY = ViewReference()


@pytest.fixture(scope="module")
def counted(queries_in: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yield a count by word with two snapshots: a savepoint, then a checkpoint. `.made` has their locations."""
    queries = queries_in(tmp_path_factory.mktemp("counted"))

    def remember(frame: Any, batch: int, context: Any) -> None:
        frame.collect()
        context.subtask(batch % 2).list_state("batches").add(batch)
        context.subtask(0).broadcast_state("limits").put("a", [1, 2])

    def writer() -> Any:
        counts = queries.lines().groupBy("value").count()
        function = with_operator_state(remember, name="writer", parallelism=2)
        return counts.writeStream.outputMode("update").foreachBatch(function)

    queries.feed(["apple", "pear", "apple", "plum"])
    queries.run(writer(), "counts")
    before = queries.snapshot(writer(), "counts", kind=CheckpointKind.SAVEPOINT)
    queries.feed(["apple", "", "fig"])
    queries.run(writer(), "counts")
    after = queries.snapshot(writer(), "counts")
    shutil.rmtree(queries.root / "counts")
    queries.made = (before, after)
    yield queries
    queries.stop()


def rows_of(found: Any) -> dict[str, Any]:
    return {json.dumps(row.key): row.value for row in found.rows}


# --- plain operators ---


def test_the_contents_name_operators_views_partitions_and_operator_state_without_spark(counted: Any) -> None:
    before, after = counted.made
    contents = contents_of(after.location)
    assert (contents.checkpoint_id, contents.kind, contents.batches) == (2, "CHECKPOINT", {"words": 1})
    [operator] = contents.keyed
    assert (operator.query, operator.number, operator.name) == ("words", 0, "aggregate (stateStoreSave)")
    assert operator.views == (StateView("default", ViewKind.STORE),)
    sizes = [
        sum(
            path.stat().st_size
            for path in (Path(after.location) / "state" / "0" / str(index)).rglob("*")
            if path.is_file()
        )
        for index in range(2)
    ]
    assert [partition.bytes for partition in operator.partitions] == sizes
    [holder] = contents.operator_state
    assert (holder.query, holder.holder, holder.parallelism) == ("words", "writer", 2)
    states = {state.name: (state.mode, state.elements) for state in holder.states}
    assert states == {"batches": ("list", ((0,), (1,))), "limits": ("broadcast", ((["a", [1, 2]],), ()))}
    assert contents_of(f"{before.location}/_metadata").kind == "SAVEPOINT"
    json.dumps(dataclasses.asdict(contents), default=lambda value: value.value)


def test_keys_and_values_are_read_from_checkpoint_and_savepoint(counted: Any, spark: Any) -> None:
    before, after = counted.made
    first = read_state(before.location, ANY, spark)
    assert rows_of(first) == {
        '{"value": "apple"}': {"count": 2},
        '{"value": "pear"}': {"count": 1},
        '{"value": "plum"}': {"count": 1},
    }
    assert (first.checkpoint_id, first.batch, first.is_truncated) == (1, 0, False)
    assert len(read_state(after.location, ANY, spark).rows) == 5
    assert not list(Path(tempfile.gettempdir()).glob("waymark-state-*")), "something was left behind"


@pytest.mark.parametrize(
    ("only", "values"),
    [
        (StateFilter(key={"value": "apple"}), ["apple"]),
        (StateFilter(key={"value": ""}), [""]),
        (StateFilter(key={"value": None}), []),
        (StateFilter(contains="p"), ["apple", "pear", "plum"]),
        (StateFilter(contains="p", where="value.count > 1 OR key.value = 'plum'"), ["apple", "plum"]),
    ],
)
def test_a_filter_keeps_rows_that_meet_all_conditions(
    counted: Any, spark: Any, only: StateFilter, values: list[str]
) -> None:
    found = read_state(counted.made[1].location, ANY, spark, only=only)
    assert sorted(row.key["value"] for row in found.rows) == values


def test_a_limit_is_kept_and_the_result_marked_as_truncated(counted: Any, spark: Any) -> None:
    found = read_state(counted.made[1].location, ANY, spark, limit=2)
    assert (len(found.rows), found.is_truncated) == (2, True)


def test_rows_by_partition_add_up_and_sizes_need_no_spark(counted: Any, spark: Any) -> None:
    location = counted.made[1].location
    sizes = state_sizes(location, ANY, spark, rows=True)
    by_partition = [len(read_state(location, ANY, spark, only=StateFilter(partition=index)).rows) for index in range(2)]
    assert [partition.rows for partition in sizes.partitions] == by_partition
    assert sum(by_partition) == 5
    assert sizes.skew_of_rows == max(by_partition) * 2 / 5
    plain = state_sizes(location, ANY)
    assert [partition.rows for partition in plain.partitions] == [None, None]
    assert plain.skew_of_bytes == max(p.bytes for p in plain.partitions) * 2 / plain.operator.bytes


@pytest.mark.nightly
def test_a_difference_counts_every_key_and_shows_some(counted: Any, spark: Any) -> None:
    before, after = counted.made
    found = state_difference(before.location, after.location, ANY, spark)
    assert (found.added, found.removed, found.changed, found.unchanged) == (2, 0, 1, 2)
    added = {(each.change, each.key["value"], each.after["count"]) for each in found.sample if each.before is None}
    assert added == {(Change.ADDED, "fig", 1), (Change.ADDED, "", 1)}
    changed = ChangedKey(Change.CHANGED, {"value": "apple"}, None, {"count": 2}, {"count": 3})
    assert changed in found.sample
    back = state_difference(after.location, before.location, ANY, spark, sample=1)
    assert (back.added, back.removed, back.changed, back.unchanged) == (0, 2, 1, 2)
    assert sorted(each.change.value for each in back.sample) == ["changed", "removed"]


# --- joins, variables, timers ---


@pytest.mark.nightly
def test_a_join_shows_the_rows_of_either_side_and_its_stores(queries: Any, spark: Any) -> None:
    def side(name: str) -> Any:
        at = functions.lit("2026-01-01").cast("timestamp")
        return queries.lines(name).withColumn("at", at).withWatermark("at", "1 hour").alias(name)

    def writer() -> Any:
        joined = side("left").join(side("right"), functions.expr("left.value = right.value AND left.at = right.at"))
        return joined.select("left.value").writeStream.foreachBatch(lambda f, _: f.collect())

    queries.feed(["a", "a", "b"], into="left")
    queries.feed(["c"], into="right")
    queries.run(writer(), "join")
    location = queries.snapshot(writer(), "join").location
    names = [view.name for view in contents_of(location).keyed[0].views]
    assert names[:2] == ["left", "right"]
    assert "left-keyToNumValues" in names
    left = read_state(location, ViewReference(view="left"), spark)
    assert sorted(row.value["value"] for row in left.rows) == ["a", "a", "b"]
    assert [row.key["field0"] for row in read_state(location, ViewReference(view="right"), spark).rows] == ["c"]
    numbers = read_state(location, ViewReference(view="left-keyToNumValues"), spark)
    assert {row.key["field0"]: row.value for row in numbers.rows} == {"a": 2, "b": 1}
    same = state_difference(location, location, ViewReference(view="left"), spark)
    assert (same.added, same.removed, same.changed, same.unchanged) == (0, 0, 0, 2)
    with pytest.raises(NoSuchState, match="view: choose one; operator 0 of query 'words' has left, right, left-key"):
        read_state(location, ANY, spark)


PAIR = StructType([StructField("first", StringType()), StructField("n", LongType())])


class Variables(KeyedProcessFunction):
    def open(self, context: RuntimeContext) -> None:
        self.total = context.value_state("total", LongType())
        self.pair = context.value_state("pair", PAIR)
        self.recent = context.list_state("recent", StringType(), StateTtlConfig(timedelta(hours=1)))
        self.letters = context.map_state("letters", StringType(), LongType(), StateTtlConfig(timedelta(hours=1)))

    def process(self, key: str, rows: Iterator[Row], context: ProcessContext) -> None:
        words = [row.value for row in rows]
        self.total.update((self.total.value() or 0) + len(words))
        self.pair.update((key, len(words)))
        self.recent.add_all(words)
        self.letters.put(key[0], len(words))
        timers = context.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 3_600_000)


@pytest.mark.nightly
def test_variables_of_keyed_state_are_read_by_their_names(queries: Any, spark: Any) -> None:
    def writer() -> Any:
        lines = queries.lines().withColumn("length", functions.length("value"))
        frame = process_keyed(lines.groupBy("value"), Variables(), "nothing string", time_mode=TimeMode.PROCESSING_TIME)
        return frame.writeStream.outputMode("update").foreachBatch(lambda f, _: f.collect())

    def until(batch: int) -> Any:
        query = queries.start(writer().trigger(processingTime="200 milliseconds"), "tws")
        while query.isActive:
            progress = query.lastProgress
            if progress and json.loads(progress["sources"][0]["endOffset"] or "{}") == {"logOffset": batch}:
                break
            query.awaitTermination(0.1)
        query.stop()
        return queries.snapshot(writer(), "tws")

    queries.feed(["x", "x", "y"])
    before = until(0)
    queries.feed(["x", "z"])
    after = until(1)
    shutil.rmtree(queries.root / "tws")
    [operator] = contents_of(after.location).keyed
    assert operator.views == (
        StateView("letters", ViewKind.MAP, has_ttl=True),
        StateView("pair", ViewKind.VALUE),
        StateView("recent", ViewKind.LIST, has_ttl=True),
        StateView("total", ViewKind.VALUE),
        StateView("timers", ViewKind.TIMERS),
    )

    def rows(name: str, only: StateFilter | None = None) -> tuple[StateRow, ...]:
        return read_state(after.location, ViewReference("words", 0, name), spark, only=only).rows

    assert {row.key["value"]: row.value for row in rows("total")} == {"x": 3, "y": 1, "z": 1}
    assert {row.key["value"]: row.value for row in rows("pair")} == {
        "x": {"first": "x", "n": 1},
        "y": {"first": "y", "n": 1},
        "z": {"first": "z", "n": 1},
    }
    recent = rows("recent", StateFilter(key={"value": "x"}))
    assert [row.value for row in recent] == ["x", "x", "x"]
    assert all(row.expires_at > after.completion_timestamp for row in recent)
    assert {(row.key["value"], row.map_key, row.value) for row in rows("letters")} == {
        ("x", "x", 1),
        ("y", "y", 1),
        ("z", "z", 1),
    }
    assert {row.key["value"] for row in rows("timers")} == {"x", "y", "z"}
    lists = state_difference(before.location, after.location, ViewReference(view="recent"), spark)
    assert (lists.added, lists.removed, lists.changed, lists.unchanged) == (1, 0, 1, 1)
    assert ChangedKey(Change.CHANGED, {"value": "x"}, None, ["x", "x"], ["x", "x", "x"]) in lists.sample
    entries = state_difference(before.location, after.location, ViewReference(view="letters"), spark)
    assert (entries.added, entries.changed, entries.unchanged) == (1, 1, 1)


# --- errors ---


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        (ViewReference(query="other"), "query: there is no 'other'; those with keyed state are words"),
        (ViewReference(operator=3), "operator of query 'words': there is no 3; those with keyed state are 0"),
        (ViewReference(view="total"), "view: there is no 'total'; operator 0 of query 'words' has default"),
    ],
)
def test_missing_state_is_refused_with_the_existing_names(counted: Any, reference: ViewReference, problem: str) -> None:
    with pytest.raises(NoSuchState, match=problem):
        read_state(counted.made[0].location, reference)


@pytest.mark.parametrize("limit", [0, 10_001, True, "5"])
def test_a_limit_out_of_range_is_refused(limit: Any) -> None:
    with pytest.raises(ValueError, match="limit: a whole number from 1 to 10000"):
        read_state("/nowhere", ANY, limit=limit)


def test_a_filter_that_cannot_be_is_refused_by_name(counted: Any, spark: Any) -> None:
    location = counted.made[0].location
    with pytest.raises(NoSuchState, match="key: there is no field 'word'; it has value"):
        read_state(location, ANY, spark, only=StateFilter(key={"word": "a"}))
    with pytest.raises(ValueError, match="where: 'nothing > 1' is not a valid condition"):
        read_state(location, ANY, spark, only=StateFilter(where="nothing > 1"))


def test_a_damaged_foreign_newer_or_missing_snapshot_is_refused_with_the_storage_error(
    counted: Any, spark: Any, tmp_path: Path
) -> None:
    copy = tmp_path / "savepoint-ababab-0123456789ab"
    shutil.copytree(counted.made[0].location, copy)
    metadata = copy / "_metadata"
    whole = metadata.read_bytes()
    with pytest.raises(MetadataMissing):
        contents_of(str(tmp_path))
    metadata.write_bytes(b"\x49\x60\x67\x2d")
    with pytest.raises(MetadataForeign):
        contents_of(str(copy))
    metadata.write_bytes(re.sub(rb'"version":\d+', b'"version":99', whole, count=1))
    with pytest.raises(MetadataFromNewerVersion):
        read_state(str(copy), ANY, spark)
    metadata.write_bytes(whole)
    changelog = next(file for file in counted.made[0].files if file.path.endswith(".changelog"))
    victim = copy / changelog.location
    content = victim.read_bytes()
    victim.write_bytes(bytes(byte ^ 0xFF for byte in content))
    with pytest.raises(StateUnreadable, match="view 'default' of operator 0 of query 'words' cannot be read"):
        read_state(str(copy), ANY, spark)
    victim.write_bytes(content[:-1])
    with pytest.raises(SnapshotIncomplete, match=f"{changelog.location} has .* bytes instead of"):
        read_state(str(copy), ANY, spark)
    victim.unlink()
    with pytest.raises(SnapshotIncomplete, match=f"{changelog.location} is missing"):
        state_difference(str(copy), counted.made[1].location, ANY, spark)


def test_reading_changes_nothing_of_the_snapshot(counted: Any, spark: Any) -> None:
    checkpoint = counted.made[1]
    paths = [Path(state_file_path(checkpoint, file)) for file in checkpoint.files]
    before = [(path.stat().st_mtime_ns, path.read_bytes()) for path in paths]
    read_state(checkpoint.location, ANY, spark)
    assert [(path.stat().st_mtime_ns, path.read_bytes()) for path in paths] == before
    assert {path for path in Path(checkpoint.location).rglob("*") if path.is_file()} == {
        *paths,
        Path(checkpoint.location) / "_metadata",
    }


def test_a_remote_savepoint_is_read_in_place_and_only_the_needed_parts(
    counted: Any, spark: Any, s3: Any, admitted: Any
) -> None:
    admitted(s3)
    local = Path(counted.made[0].location)
    location = f"{s3.root}/{local.name}"
    for path in local.rglob("*"):
        if path.is_file() and "sources" not in path.parts:  # these are not read
            files_for(location).put(path, f"{location}/{path.relative_to(local)}")
    assert rows_of(read_state(location, ANY, spark)) == rows_of(read_state(str(local), ANY, spark))
    assert contents_of(location).keyed == contents_of(str(local)).keyed
    assert contents_of(location).operator_state == contents_of(str(local)).operator_state


# --- the command ---


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("state", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_lists_and_sizes_without_spark_as_text_and_json(counted: Any) -> None:
    before, after = counted.made
    text = command("list", after.location)
    assert f"CHECKPOINT 2 of job words ({'ab' * 16}): words after batch 1" in text
    assert "query words, operator 0: aggregate (stateStoreSave)" in text
    assert "  default  store" in text
    assert "  batches  list  [[0], [1]]" in text
    listed = json.loads(command("list", before.location, "--json"))
    assert (listed["kind"], listed["keyed"][0]["views"]) == (
        "SAVEPOINT",
        [{"name": "default", "kind": "store", "has_ttl": False}],
    )
    assert "Largest partition against the mean: bytes " in command("sizes", after.location)


def test_the_command_reads_counts_and_compares(counted: Any, spark: Any) -> None:
    before, after = (made.location for made in counted.made)
    text = command("read", after, "--key", "value=apple")
    assert text.splitlines()[0].split() == ["partition", "key", "value"]
    assert '{"value": "apple"}  {"count": 3}' in text
    assert text.splitlines()[-1] == "1 row."
    found = json.loads(command("read", after, "--where", "value.count = 3", "--json"))
    assert [(row["key"], row["value"]) for row in found["rows"]] == [({"value": "apple"}, {"count": 3})]
    assert "There are more than 2 rows; see --limit." in command("read", after, "--limit", "2")
    rows = json.loads(command("sizes", after, "--rows", "--json"))["partitions"]
    assert sum(partition["rows"] for partition in rows) == 5
    assert "rows " in command("sizes", after, "--rows").splitlines()[-1]
    changes = command("diff", before, after)
    assert changes.startswith("From 1 to 2: 2 added, 0 removed, 1 changed, 2 as before.")
    assert json.loads(command("diff", before, after, "--json", "--sample", "0"))["sample"] == []


@pytest.mark.nightly
def test_the_command_starts_spark_where_none_runs(counted: Any, java_home: Path) -> None:
    arguments = ["state", "read", counted.made[0].location, "--key", "value=pear", "--json"]
    manage = Path(__file__).resolve().parents[3] / "manage.py"
    done = subprocess.run([sys.executable, manage, *arguments], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert [row["value"] for row in json.loads(done.stdout.splitlines()[-1])["rows"]] == [{"count": 1}]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("read", "{}", "--key", "word"), "--key 'word': FIELD=TEXT is expected"),
        (("read", "{}", "--view", "total"), "view: there is no 'total'"),
        (("read", "{}", "--limit", "0"), "limit: a whole number"),
        (("diff", "{}", "{}", "--sample", "-1"), "sample: a whole number"),
        (("list", "{}/nothing"), "there is no _metadata"),
        (("list", "relative"), "/relative: there is no _metadata"),
        (("list", "file:relative"), "neither an absolute path nor an address"),
    ],
)
def test_the_command_explains_an_error_in_one_sentence(counted: Any, arguments: Any, problem: str) -> None:
    location = counted.made[0].location
    with pytest.raises(CommandError, match=problem):
        command(*(word.format(location) for word in arguments))
