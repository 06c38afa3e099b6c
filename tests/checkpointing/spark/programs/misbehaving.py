"""Programs that do something forbidden or unusual."""

import sys
import time


def stops_first(spark, args):
    spark.stop()
    return numbers(spark).format("noop")


def stops_in_a_batch(spark, args):
    def write(frame, batch):
        spark.stop()

    return numbers(spark).foreachBatch(write)


def blocks(spark, args):
    while True:
        time.sleep(0.1)


def chatters(spark, args):
    """Write 70 MB to the log before returning the query, and one more MB in each batch."""

    def write(frame, batch):
        print("b" * 1_000_000, batch, file=sys.stderr, flush=True)

    for number in range(70):
        print("p" * 1_000_000, number, flush=True)
    return numbers(spark).foreachBatch(write)


def fine(spark, args):
    return numbers(spark).format("noop")


def numbers(spark):
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    return rows.writeStream.queryName("numbers").trigger(processingTime="200 milliseconds")
