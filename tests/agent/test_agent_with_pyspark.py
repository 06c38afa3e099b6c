"""The agent in a plain PySpark program, which nothing else connects to Waymark: its reports equal Spark's progress."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.servers import Waymark, never_answers, raw_server
from tests.agent.sessions import AGENT

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.long]

PROGRAM = """
import json, sys, time
from pyspark.sql import SparkSession, functions as F
import waymark_agent

waymark_agent.FLUSH_S = float(sys.argv[3])
spark = (
    SparkSession.builder.appName("shop").master("local[2]").config("spark.sql.shuffle.partitions", "2")
    .config("spark.ui.enabled", "false").getOrCreate()
)
waymark_agent.attach(spark)
rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load().withWatermark("timestamp", "2 seconds")
counts = rows.groupBy(F.window("timestamp", "1 second")).count()
query = (
    counts.writeStream.queryName("counts").format("noop").outputMode("update")
    .option("checkpointLocation", sys.argv[1]).trigger(processingTime="100 milliseconds").start()
)
until = time.monotonic() + 120
while len(query.recentProgress) < int(sys.argv[2]) and time.monotonic() < until:
    time.sleep(0.1)
query.stop()
print("PROGRESS", json.dumps([json.loads(each.json) for each in query.recentProgress]))

def fails(value):
    raise ValueError("boom <b>")

broken = rows.select(F.udf(fails)("value")).writeStream.queryName("broken").format("noop").start()
try:
    broken.awaitTermination(120)
except Exception:
    pass
"""


def run(directory: Path, java_home: Path, url: str, flush_s: float) -> list[dict[str, Any]]:
    """Run the program, and return Spark's own progress of its first query."""
    (directory / "program.py").write_text(PROGRAM)
    environment = {
        **os.environ,
        "WAYMARK_URL": url,
        "WAYMARK_TOKEN": "wmk_x",
        "PYTHONPATH": str(AGENT.parent),
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(java_home),
    }
    output = subprocess.run(
        [sys.executable, "program.py", str(directory / "checkpoint"), "8", str(flush_s)],
        stdout=subprocess.PIPE,
        cwd=directory,
        env=environment,
        timeout=280,
        check=True,
    ).stdout
    (line,) = [line for line in output.splitlines() if line.startswith(b"PROGRESS ")]
    found: list[dict[str, Any]] = json.loads(line.removeprefix(b"PROGRESS "))
    return found


def test_the_reports_equal_spark_s_own_progress(tmp_path: Path, java_home: Path) -> None:
    with Waymark().running() as server:
        own = run(tmp_path, java_home, server.url, flush_s=60)
    named = {each["name"]: each for each in server.queries.values()}
    assert named["counts"]["state"] == "ended"
    assert named["counts"]["exception"] is None
    assert named["broken"]["state"] == "ended"
    assert "ValueError: boom <b>" in named["broken"]["exception"]
    reported = {each["batchId"]: each for each in server.stored if each["name"] == "counts"}
    assert len(own) >= 8
    for spark in own:
        ours = reported[spark["batchId"]]
        for name in ("id", "runId", "timestamp", "batchDuration", "durationMs", "numInputRows", "eventTime"):
            assert ours[name] == spark[name], name
        for name in ("inputRowsPerSecond", "processedRowsPerSecond"):
            assert ours.get(name) == spark.get(name), name
        (operator,), (theirs,) = ours["stateOperators"], spark["stateOperators"]
        assert operator == {name: theirs[name] for name in operator}
        assert {"numRowsTotal", "memoryUsedBytes", "customMetrics"} <= operator.keys()
        assert ours["sources"][0]["endOffset"] == str(spark["sources"][0]["endOffset"])
    assert {post["program"]["name"] for post in server.posts} == {"shop"}


def test_a_server_that_hangs_does_not_delay_the_program(tmp_path: Path, java_home: Path) -> None:
    with raw_server(never_answers) as url:
        own = run(tmp_path, java_home, url, flush_s=2)
    assert len(own) >= 8
