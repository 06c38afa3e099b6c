"""Queries whose every batch takes about 24 s on two cores, or never ends."""

import threading
import time

from pyspark.sql.functions import expr

BATCH_S = 24


def many_tasks(spark, args):
    """48 tasks take a second each."""
    return _numbers(spark, rows=48, tasks=48, sleep_ms=1000).writeStream.format("noop")


def one_task(spark, args):
    """One task takes 5 ms for each row. Spark counts a source's rows by the hundred."""
    return _numbers(spark, rows=4800, tasks=1, sleep_ms=5).writeStream.format("noop")


def function(spark, args):
    """The foreachBatch function computes without a task."""

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
