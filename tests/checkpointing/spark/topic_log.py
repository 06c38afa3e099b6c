"""A topic like Kafka's, on the local disk: it has partitions that only grow, with an offset in each.

`format("topiclog").option("topic", DIRECTORY)` reads and writes a topic. Its offsets look like those of Kafka's source,
`{"TOPIC": {"0": 17, "1": 4}}`. Partitions may be added at any time. Writes are at least once.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

# Python workers cannot import the tests' modules.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

Offsets = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Topic:
    directory: Path

    def add_partitions(self, count: int) -> None:
        self.directory.mkdir(exist_ok=True)
        for number in range(count):
            self._file(number).touch()

    def append(self, partition: int, *values: str) -> None:
        """Append the values in one write, which is atomic even if other processes append at the same time."""
        text = "".join(f"{json.dumps(value)}\n" for value in values)
        descriptor = os.open(self._file(partition), os.O_WRONLY | os.O_APPEND)
        try:
            assert os.write(descriptor, text.encode()) == len(text.encode())
        finally:
            os.close(descriptor)

    def ends(self) -> dict[str, int]:
        return {str(number): len(self._lines(number)) for number in self._numbers()}

    def read(self, partition: int, start: int, end: int) -> list[str]:
        return [json.loads(line) for line in self._lines(partition)[start:end]]

    def until(self, ends: dict[str, int]) -> list[str]:
        """Return the values before the offsets `ends`, partition by partition."""
        return [value for number, end in sorted(ends.items()) for value in self.read(int(number), 0, end)]

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.directory.glob("*.log"))

    def _lines(self, partition: int) -> list[str]:
        return self._file(partition).read_text().splitlines()

    def _file(self, partition: int) -> Path:
        return self.directory / f"{partition}.log"


class TopicLog(DataSource):
    @classmethod
    def name(cls) -> str:
        return "topiclog"

    def schema(self) -> str:
        return "partition int, value string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TopicReader(Topic(Path(self.options["topic"])))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return TopicWriter(Topic(Path(self.options["topic"])))


class TopicReader(DataSourceStreamReader):
    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._name = topic.directory.name

    def initialOffset(self) -> Offsets:
        return {self._name: dict.fromkeys(self._topic.ends(), 0)}

    def latestOffset(self) -> Offsets:
        return {self._name: self._topic.ends()}

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        known = start[self._name]
        return [InputPartition((number, known.get(number, 0), until)) for number, until in end[self._name].items()]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        number, start, end = partition.value
        return ((int(number), value) for value in self._topic.read(int(number), start, end))


class TopicWriter(DataSourceStreamWriter):
    """A writer of rows (partition, value). The rows of a task stay even if its batch runs again."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for row in iterator:
            self._topic.append(row["partition"], row["value"])
        return WriterCommitMessage()

    def commit(self, messages: Iterable[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        pass

    def abort(self, messages: Iterable[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass
