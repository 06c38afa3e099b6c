# ruff: noqa: N802  (names of PySpark)
"""Run small batches in turns without an agent and with one for each address: `agent_batches.py JSON`.

JSON has `urls` (by name; "": a listener that does nothing instead of the agent; null: no listener), `turns`, and the
batches of a turn (`batches`). The last line of the output is JSON: the milliseconds from the start of each batch to the
start of the next one, by name. Imports nothing of Waymark but the agent.
"""

import json
import sys
import tempfile
import time
from datetime import datetime

import waymark_agent
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

SKIPPED = 5  # at the start of a turn
WARM_UP = 100


class DoesNothing(StreamingQueryListener):
    def __init__(self, spark):
        self._streams = spark.streams
        self._streams.addListener(self)

    def close(self):
        self._streams.removeListener(self)

    def onQueryStarted(self, event):
        pass

    def onQueryProgress(self, event):
        pass

    def onQueryIdle(self, event):
        pass

    def onQueryTerminated(self, event):
        pass


def listening(spark, url):
    """Return what listens now and can be closed, None if nothing does."""
    if url is None:
        return None
    return waymark_agent.attach(spark, url, "wmk_benchmark") if url else DoesNothing(spark)


def main() -> None:
    asked = json.loads(sys.argv[1])
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000000")
        .getOrCreate()
    )
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", tempfile.mkdtemp())
    query = writer.start()

    def newest() -> int:
        progress = query.lastProgress
        return -1 if progress is None else progress["batchId"]

    def run(batches: int) -> range:
        first = newest() + SKIPPED
        while newest() < first + batches:
            time.sleep(0.2)
        return range(first, first + batches)

    run(WARM_UP)
    measured = {name: [] for name in asked["urls"]}
    names = list(measured)
    for turn in range(asked["turns"]):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            listener = listening(spark, asked["urls"][name])
            measured[name] += run(asked["batches"])
            if listener is not None:
                listener.close()
    started = {each["batchId"]: datetime.fromisoformat(each["timestamp"][:-1]) for each in query.recentProgress}
    query.stop()
    periods = {
        name: [(started[batch + 1] - started[batch]).total_seconds() * 1000 for batch in batches]
        for name, batches in measured.items()
    }
    print(json.dumps(periods))


main()
