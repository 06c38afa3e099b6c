"""Programs that count the words of arriving files. Each batch writes its changed counts to a file below `output`."""

import json
import os
import time
from pathlib import Path


def wordcount(spark, args):
    words = spark.readStream.format("text").option("maxFilesPerTrigger", args.get("files-per-batch", "1"))
    counts = words.load(args["input"]).groupBy("value").count()
    writer = counts.writeStream.outputMode("update").queryName("words").foreachBatch(collector(args))
    return writer.trigger(processingTime=args.get("trigger", "0 seconds"))


def keyed(spark, args):
    """Count words in keyed state, so that the executors run Waymark's code."""
    from pyspark.sql.types import LongType

    from checkpointing.state import KeyedProcessFunction, process_keyed

    class Count(KeyedProcessFunction):
        def open(self, context):
            self.total = context.value_state("total", LongType())

        def process(self, key, rows, context):
            total = (self.total.value() or 0) + sum(1 for _ in rows)
            self.total.update(total)
            yield key, total

    words = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(args["input"])
    counts = process_keyed(words.groupBy("value"), Count(), "value string, count long")
    return counts.writeStream.outputMode("update").queryName("words").foreachBatch(collector(args))


def collector(args):
    """Return a foreachBatch function that writes one file per batch. A batch that runs again replaces its file."""
    output = Path(args["output"])

    def write(frame, batch):
        rows = {row["value"]: row["count"] for row in frame.collect()}
        if "poison" in rows:
            raise ValueError("poison is not a word")
        while (output / "hold").exists():  # the test holds the batch here
            (output / "held").touch()
            time.sleep(0.01)
        partial = output / f".{batch}.{os.getpid()}"
        partial.write_text(json.dumps(rows))
        partial.rename(output / f"{batch:05}.json")

    return write


def forgot_return(spark, args):
    spark.readStream.format("text").load(args["input"])


def unreadable(spark, args):
    return spark.readStream.format("text").load("/does/not/exist").writeStream.format("console")


def numbers(spark, args):
    """Return a stateless query with Spark's continuous trigger."""
    rate = spark.readStream.format("rate").option("rowsPerSecond", 20).option("numPartitions", 2).load()
    return rate.select("value").writeStream.queryName("numbers").format("noop").trigger(continuous="300 milliseconds")


def shown(spark, args):
    """Write some settings of the session to the file `show`, then count words."""
    known = [spark.sparkContext.appName, spark.conf.get("spark.sql.session.timeZone")]
    known.append(spark.conf.get("spark.sql.streaming.minBatchesToRetain"))
    Path(args["show"]).write_text(" ".join(known))
    return wordcount(spark, args)


def hungry(spark, args):
    """Return a query that fills the driver's heap in its first batch."""

    def fill(frame, batch):
        kept = spark._jvm.java.util.ArrayList()
        while True:
            kept.add(spark._jvm.java.nio.ByteBuffer.allocate(50_000_000))

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    return rows.writeStream.queryName("hungry").foreachBatch(fill)


def picky(spark, args):
    """Return a query whose Python function raises in a task."""
    from pyspark.sql.functions import udf

    @udf("long")
    def checked(value):
        if value > 12:
            raise KeyError("no such number")
        return value

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    return rows.coalesce(1).select(checked("value")).writeStream.queryName("numbers").format("noop")
