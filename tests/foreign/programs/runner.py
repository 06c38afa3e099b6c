"""Run a program of Spark unchanged: `runner.py DIRECTORY PROGRAM [ARGUMENT…]`, with any PySpark from 3.5 on.

DIRECTORY gets `progress.jsonl`, Spark's own reports to a listener. The agent is attached if WAYMARK_URL is set. After a
line on the standard input, the queries are stopped. Nothing here imports Waymark.
"""

import json
import os
import runpy
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

directory, program, *arguments = sys.argv[1:]
with_queries = SparkSession.Builder.getOrCreate
output = (Path(directory) / "progress.jsonl").open("a", buffering=1)


class Listener(StreamingQueryListener):
    def onQueryStarted(self, event):
        write("started", id=str(event.id), runId=str(event.runId), name=event.name, timestamp=event.timestamp)

    def onQueryProgress(self, event):
        progress = json.loads(event.progress.json)
        write("progress", **{"batchDuration": event.progress.batchDuration, **progress})  # Spark 3.5 has no such JSON

    def onQueryIdle(self, event):
        pass

    def onQueryTerminated(self, event):
        write("terminated", id=str(event.id), runId=str(event.runId), exception=event.exception)


def write(kind, **fields):
    output.write(json.dumps({"kind": kind, **fields}) + "\n")


def observed(builder):
    """Return the session of the program, as `getOrCreate` does. The first call adds the listeners."""
    SparkSession.Builder.getOrCreate = with_queries
    spark = builder.getOrCreate()
    spark.streams.addListener(Listener())
    if "WAYMARK_URL" in os.environ:
        import waymark_agent

        waymark_agent.attach(spark)
    threading.Thread(target=stop_on_request, args=(spark,), daemon=True).start()
    return spark


def stop_on_request(spark):
    sys.stdin.readline()
    for query in spark.streams.active:
        # Spark may report a query as failed if it is stopped in a batch. A query that never rests is stopped anyway.
        for _ in range(100):
            if not (query.isActive and query.status["isTriggerActive"]):
                break
            time.sleep(0.1)
        query.stop()


SparkSession.Builder.getOrCreate = observed
sys.argv = [program, *arguments]
runpy.run_path(program, run_name="__main__")
SparkSession.builder.getOrCreate().stop()  # Spark has sent all events to its listeners then
