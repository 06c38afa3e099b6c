"""Operator state of a Python source in real queries always belongs to the source's offset."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from checkpointing.state import OperatorStateReader, OperatorStateUnusable, SourceOffset
from checkpointing.state.operator_state import OperatorStateContext, empty_stores

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Splits(DataSource):
    """A source with five splits, assigned to `subtasks` readers by list state. Each batch reads one row of every split.

    The reader writes the rows and the state that it saw to the file `log`.
    """

    @classmethod
    def name(cls) -> str:
        return "splits"

    def schema(self) -> str:
        return "subtask int, split int, row int"

    def streamReader(self, schema: StructType) -> SplitReader:
        return SplitReader(int(self.options["subtasks"]), Path(self.options["log"]), int(self.options["until"]))


class SplitReader(OperatorStateReader):
    def __init__(self, subtasks: int, log: Path, until: int) -> None:
        self.parallelism = subtasks
        self._log = log
        self._until = until

    def initial_position(self) -> dict[str, Any]:
        return {"row": 0}

    def latest_position(self, start: SourceOffset, limit: Any) -> dict[str, Any]:
        row = start.position["row"]
        if row >= self._until:
            return start.position
        state = start.state
        if row == 0:
            state.subtask(0).list_state("splits").update(range(5))
        self._note(
            row,
            state.is_restored,
            [store.list_state("splits").get() for store in state.stores],
            [store.union_list_state("seen").get() for store in state.stores],
            [store.broadcast_state("config").get("row") for store in state.stores],
        )
        for index, store in enumerate(state.stores):
            store.union_list_state("seen").update([f"{index} of {self.parallelism}"])
            store.broadcast_state("config").put("row", row)
        return {"row": row + 1}

    def partitions_between(self, start: SourceOffset, end: SourceOffset) -> Sequence[InputPartition]:
        return [
            InputPartition((index, split, start.position["row"]))
            for index, store in enumerate(end.state.stores)
            for split in store.list_state("splits").get()
        ]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int, int]]:
        yield partition.value

    def committed(self, end: SourceOffset) -> None:
        self._note("committed", end.position["row"])

    def _note(self, *words: Any) -> None:
        with self._log.open("a") as file:
            file.write(json.dumps(words) + "\n")


class Run:
    def __init__(self, queries: Any, name: str, subtasks: int, until: int) -> None:
        self.log = queries.root / f"{name}.log"
        self.rows: list[tuple[int, ...]] = []
        reader = queries.spark.readStream.format("splits").option("subtasks", str(subtasks))
        frame = reader.option("log", str(self.log)).option("until", str(until)).load()
        self.writer = frame.writeStream.foreachBatch(lambda f, _: self.rows.extend(tuple(r) for r in f.collect()))

    @property
    def notes(self) -> list[list[Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.mark.nightly
def test_state_is_redistributed_with_the_offset_and_a_rerun_reads_the_same(spark: Any, queries: Any) -> None:
    spark.dataSource.register(Splits)
    first = Run(queries, "first", subtasks=1, until=2)
    queries.run(first.writer, "first")
    assert sorted(first.rows) == [(0, split, row) for split in range(5) for row in range(2)]
    checkpoint = queries.snapshot(first.writer, "first")

    # A crash within the batch: its offset exists, but not its commit.
    (queries.root / "first" / "commits" / "1").unlink()
    (queries.root / "first" / "commits" / ".1.crc").unlink(missing_ok=True)
    rerun = Run(queries, "rerun", subtasks=2, until=2)
    queries.run(rerun.writer, "first")
    assert sorted(rerun.rows) == [(0, split, 1) for split in range(5)], "the batch was cut before the rescale"

    again = Run(queries, "again", subtasks=3, until=4)
    queries.restore(checkpoint, again.writer, "again")
    queries.run(again.writer, "again")
    owner = {0: 0, 1: 0, 2: 1, 3: 1, 4: 2}
    assert sorted(again.rows) == sorted((owner[split], split, row) for split in range(5) for row in (2, 3))
    dealt = [[0, 1], [2, 3], [4]]
    own = [["0 of 3"], ["1 of 3"], ["2 of 3"]]
    assert [note for note in again.notes if note[0] != "committed"] == [
        [2, True, dealt, [["0 of 1"]] * 3, [1] * 3],
        [3, False, dealt, own, [2] * 3],
    ]
    assert ["committed", 3] in again.notes


def test_an_idle_source_creates_no_batch_after_its_restore() -> None:
    reader = SplitReader(3, Path("/dev/null"), until=0)
    pair = empty_stores(2)
    pair[0].union_list_state("seen").add("x")
    start = SourceOffset({"row": 5}, OperatorStateContext(pair)).to_plain()
    assert reader.latestOffset(start, None) is start


def test_an_offset_of_another_kind_of_source_is_refused() -> None:
    with pytest.raises(
        OperatorStateUnusable, match=r'the offset \{"row": 5\} was not written by a source with operator state'
    ):
        SplitReader(1, Path("/dev/null"), 9).latestOffset({"row": 5}, None)
