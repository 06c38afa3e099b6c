"""Queries whose batches each take about 60 s on two cores, or never end."""

import threading
import time

from pyspark.sql.functions import expr

BATCH_S = 60


def many_tasks(spark, args):
    """Return a query whose batches have 120 tasks of one second each."""
    return _numbers(spark, rows=120, tasks=120, sleep_ms=1000).writeStream.format("noop")


def one_task(spark, args):
    """Return a query with one task per batch, 5 ms a row. Spark counts a source's rows in steps of a hundred."""
    return _numbers(spark, rows=12_000, tasks=1, sleep_ms=5).writeStream.format("noop")


def function(spark, args):
    """Return a query whose foreachBatch function computes without a Spark task."""

    def compute(frame, batch):
        end_s = time.monotonic() + BATCH_S
        while time.monotonic() < end_s:
            sum(range(10_000))

    return _numbers(spark).writeStream.foreachBatch(compute)


def hangs(spark, args):
    def hang(frame, batch):
        threading.Event().wait()

    return _numbers(spark).writeStream.foreachBatch(hang)


def _numbers(spark, rows=1, tasks=1, sleep_ms=0):
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", tasks)
    return source.load().withColumn("slept", expr(f"reflect('java.lang.Thread', 'sleep', {sleep_ms}L)"))
