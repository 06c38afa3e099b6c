"""A script for spark-submit with two queries over the words of files. The script decides when it ends."""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def writer_to(output):
    def write(frame, batch):
        partial = output / f".{batch}.{os.getpid()}"
        partial.write_text(json.dumps({row["value"]: row["count"] for row in frame.collect()}))
        partial.rename(output / f"{batch:05}.json")

    return write


if __name__ == "__main__":
    source, output, *once = sys.argv[1:]
    spark = SparkSession.builder.appName("Words").master("local[8]").getOrCreate()
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(source)
    trigger = {"availableNow": True} if once else {"processingTime": "0 seconds"}

    counts = lines.groupBy("value").count().writeStream.outputMode("update").trigger(**trigger)
    words = counts.queryName("words").foreachBatch(writer_to(Path(output))).start()
    Path(output, "id").write_text(words.id)  # written before the second query starts
    copies = lines.writeStream.queryName("copies").trigger(**trigger).format("json").start(f"{output}/copies")

    words.awaitTermination()
    copies.awaitTermination()
    Path(output, "done").write_text(f"{words.isActive} {copies.isActive} {words.lastProgress['id']}")
    spark.stop()
