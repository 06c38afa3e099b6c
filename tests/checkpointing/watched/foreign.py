"""A PySpark process with a query that Waymark knows nothing about."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOREIGN = """
import json, sys
from pyspark.sql import SparkSession, functions as F

spark = (
    SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    .config("spark.ui.enabled", "false").getOrCreate()
)
rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load().withWatermark("timestamp", "2 seconds")
counts = rows.groupBy(F.window("timestamp", "1 second")).count()
for _ in sys.stdin:
    query = (
        counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", sys.argv[1])
        .trigger(processingTime="500 milliseconds").start()
    )
    sys.stdin.readline()
    query.stop()
    progress = [json.loads(json.dumps(each, default=str)) for each in query.recentProgress]
    print("PROGRESS", json.dumps(progress), flush=True)
"""


class Foreign:
    """A PySpark process that runs its query once after another."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders, self._output = process.stdin, process.stdout

    @contextmanager
    def running(self) -> Iterator[list[dict[str, Any]]]:
        """Run the query. After the block, the list has its progress events."""
        events: list[dict[str, Any]] = []
        self._order()
        yield events
        self._order()
        line = next(line for line in self._output if line.startswith(b"PROGRESS "))
        events += json.loads(line.removeprefix(b"PROGRESS "))

    def _order(self) -> None:
        self._orders.write(b"\n")
        self._orders.flush()


@contextmanager
def foreign_process(location: Path, directory: Path) -> Iterator[Foreign]:
    """Yield a process whose query has this checkpointLocation."""
    program = directory / "foreign.py"
    program.write_text(FOREIGN)
    command = [sys.executable, str(program), str(location)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=directory) as process:
        try:
            yield Foreign(process)
            process.communicate(timeout=240)  # without another line it ends
        finally:
            process.kill()
