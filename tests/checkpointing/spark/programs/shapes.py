"""A script with the features of public scripts: relative paths, a listener, several queries and kinds of sinks."""

import argparse
import json
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit, when
from pyspark.sql.streaming import StreamingQueryListener


class Listener(StreamingQueryListener):
    def onQueryStarted(self, event):
        with Path("started").open("a") as file:
            file.write(f"{event.name}\n")

    def onQueryProgress(self, event):
        with Path("progress").open("a") as file:
            file.write(json.dumps({"query": event.progress.name, "rows": event.progress.numInputRows}) + "\n")

    def onQueryTerminated(self, event):
        pass


def write_metrics(frame, epoch, status):
    frame.groupBy().count().withColumn("status", lit(status)).write.mode("append").json(f"metrics/{status}")


def ingest(spark, trigger, sensor):
    readings = spark.readStream.schema("sensor string, value double").json(f"streams/{sensor}")
    valid, invalid = readings.filter(col("value").isNotNull()), readings.filter(col("value").isNull())
    named = valid.withColumn("level", when(col("value") > 10, "high").otherwise("low"))
    return [
        named.writeStream.trigger(**trigger).partitionBy("level").format("json")
        .queryName(f"{sensor}_valid").option("checkpointLocation", f"checkpoints/{sensor}").start(f"bronze/{sensor}"),
        invalid.writeStream.trigger(**trigger).queryName(f"{sensor}_rejected")
        .option("path", str(Path("rejected", sensor).absolute()))
        .toTable(f"rejected_{sensor}", format="json"),
        valid.writeStream.trigger(**trigger).queryName(f"{sensor}_metrics")
        .foreachBatch(lambda frame, epoch: write_metrics(frame, epoch, sensor)).start(),
    ]  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sensors", nargs="+", required=True)
    parser.add_argument("--once", action="store_true")
    args = parser.parse_args()
    spark = SparkSession.builder.appName("shapes").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.streams.addListener(Listener())
    trigger = {"availableNow": True} if args.once else {"processingTime": "100 milliseconds"}
    queries = [query for sensor in args.sensors for query in ingest(spark, trigger, sensor)]
    if not args.once:
        spark.streams.awaitAnyTermination()
    for query in queries:
        query.awaitTermination()
    with Path("ended").open("w") as file:
        file.write(" ".join(str(query.lastProgress["numInputRows"]) for query in queries if query.lastProgress))
    for query in spark.streams.active:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
