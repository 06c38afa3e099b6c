"""Queries in the shapes of Spark's guide, `shapes.py NAME…`, each named after its shape. Rates are rows per second."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

STORE = "spark.sql.streaming.stateStore."
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

spark = SparkSession.builder.appName("shapes").getOrCreate()


def rate(rows=40):
    return spark.readStream.format("rate").option("rowsPerSecond", rows).load()


def windowed():
    rows = rate().withWatermark("timestamp", "2 seconds")
    return rows.groupBy(F.window("timestamp", "1 second")).count()


def joined():
    """An inner join of two streams with a condition on time: it needs four state stores."""
    left = rate().selectExpr("value AS l", "timestamp AS at").withWatermark("at", "2 seconds")
    right = rate(20).selectExpr("value AS r", "timestamp AS seen").withWatermark("seen", "3 seconds")
    return left.join(right, F.expr("l = r AND seen BETWEEN at - INTERVAL 5 SECONDS AND at + INTERVAL 5 SECONDS"))


def failing():
    def fails(value):
        if value > 60:
            raise ValueError("boom <b>")
        return value

    return rate().select(F.udf(fails, "long")("value").alias("value"))


SHAPES = {
    "windowed": windowed,
    "windowed_rocksdb": windowed,
    "distinct": lambda: rate().select((F.col("value") % 7).alias("value")).dropDuplicates(["value"]),
    "joined_rocksdb": joined,
    "written": rate,
    "failing": failing,
}
COUNTED = []


def start(name):
    spark.conf.set(STORE + "providerClass", ROCKSDB if name.endswith("rocksdb") else HDFS)
    # Spark delivers its reports to Python slowly. With shorter batches, they would queue up on a busy machine.
    writer = SHAPES[name]().writeStream.queryName(name).trigger(processingTime="10 seconds")
    if name == "written":
        return writer.foreachBatch(lambda rows, batch: COUNTED.append((batch, rows.count()))).start()
    return writer.format("noop").outputMode("append" if name.startswith("joined") else "update").start()


for query in [start(name) for name in sys.argv[1:]]:
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001
        print(type(error).__name__, file=sys.stderr)
