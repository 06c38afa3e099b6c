"""Applications of others, in plain PySpark processes: their event logs agree with Spark's own progress."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from checkpointing.clock import SystemClock
from checkpointing.eventlogs import Logs, News, advance
from checkpointing.storage.files import LocalFiles
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.long]

APPLICATION = """
import json, sys
from pyspark.sql import SparkSession, functions as F

directory, codec, rolling = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]").appName("foreign").config("spark.sql.shuffle.partitions", "2")
    .config("spark.ui.enabled", "false").config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.dir", "file://" + directory + "/logs").config("spark.eventLog.rolling.enabled", rolling)
    .config("spark.eventLog.compress", "false" if codec == "none" else "true")
    .config("spark.eventLog.compression.codec", "zstd" if codec == "none" else codec)
    .config("spark.eventLog.rolling.maxFileSize", "10m").getOrCreate()
)
rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
counts = rows.withWatermark("timestamp", "2 seconds").groupBy(F.window("timestamp", "1 second")).count()

def start(frame, name):
    written = frame.writeStream.format("noop").queryName(name).outputMode("update")
    return written.option("checkpointLocation", directory + "/" + name).start()

query = start(counts, "counts")
failing = start(rows.select(F.expr("CASE WHEN value > 20 THEN raise_error('bad row') ELSE value END v")), "failing")
sys.stdin.readline()
query.stop()
print("PROGRESS", json.dumps([json.loads(each.json) for each in query.recentProgress]), flush=True)
spark.stop()
"""


@contextmanager
def foreign(directory: Path, codec: str, *, rolling: bool) -> Iterator[tuple[Reader, list[dict[str, Any]]]]:
    """Run the application. After the block, it has ended, and the list has its progress events."""
    (directory / "logs").mkdir()
    program = directory / "foreign.py"
    program.write_text(APPLICATION)
    events: list[dict[str, Any]] = []
    process = subprocess.Popen(
        [sys.executable, str(program), str(directory), codec, str(rolling).lower()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=directory,
    )
    try:
        yield Reader(directory / "logs"), events
        output, _ = process.communicate(b"\n", timeout=240)
        (line,) = [line for line in output.splitlines() if line.startswith(b"PROGRESS ")]
        events += json.loads(line.removeprefix(b"PROGRESS "))
    finally:
        process.kill()
        process.wait()


class Reader:
    def __init__(self, root: Path) -> None:
        self.root, self.row = str(root), "{}"
        self.news: list[News] = []

    def step(self) -> bool:
        """Read on, as a new worker that only knows the stored row."""
        logs = Logs.from_row(json.loads(self.row))
        logs, news = advance(logs, self.root, LocalFiles(), SystemClock().now_ms(), lambda: True, {})
        self.row = json.dumps(logs.as_row())
        self.news += news
        return bool(news)

    def batches(self, name: str) -> list[dict[str, Any]]:
        return [batch for each in self.news for batch in each.batches if batch["name"] == name]

    def queries(self, name: str) -> list[dict[str, Any]]:
        return [query for each in self.news for query in each.queries if query["name"] == name]

    def reaches(self, count: int) -> bool:
        self.step()
        has_failed = any(query["state"] == "ended" for query in self.queries("failing"))
        return has_failed and len(self.batches("counts")) >= count


# The other codecs are read from recordings, too (test_codecs.py).
@pytest.mark.parametrize(
    ("codec", "rolling"),
    [
        ("zstd", True),
        ("none", False),
        ("lz4", True),
        ("snappy", False),
    ],
)
def test_an_event_log_agrees_with_sparks_own_progress(tmp_path: Path, codec: str, rolling: bool) -> None:
    with foreign(tmp_path, codec, rolling=rolling) as (reader, events):
        eventually("a log", lambda: any((tmp_path / "logs").iterdir()))
        if codec in ("zstd", "none"):
            eventually("four batches and a failure", lambda: reader.reaches(4))
        else:  # Spark writes these in blocks, so an event may come late
            eventually("four batches", (tmp_path / "counts/commits/3").exists)
            eventually("a part of the log", lambda: reader.step() or reader.news)
    for _ in range(4):
        reader.step()
    assert json.loads(reader.row)["problems"] == []
    assert list(json.loads(reader.row)["logs"].values()) == [{"ended": True}]
    batches = reader.batches("counts")
    assert [batch["batchId"] for batch in batches] == [each["batchId"] for each in events]
    for batch, theirs in zip(batches, events, strict=True):
        for name in ("id", "runId", "timestamp", "batchDuration", "durationMs", "eventTime", "numInputRows"):
            assert batch[name] == theirs[name]
        (operator,), (source,) = theirs["stateOperators"], theirs["sources"]
        assert batch["stateOperators"] == [{name: operator[name] for name in batch["stateOperators"][0]}]
        assert batch["sources"][0]["endOffset"] == json.dumps(source["endOffset"])
    assert reader.queries("counts")[-1]["state"] == "ended"
    assert "exception" not in reader.queries("counts")[-1]
    failed = [query for query in reader.queries("failing") if "exception" in query]
    assert "bad row" in failed[0]["exception"]
    assert {(each.program, each.spark[:2]) for each in reader.news} == {("foreign", "4.")}
