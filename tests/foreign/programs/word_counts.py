"""Count the words of files: `word_counts.py INPUT OUTPUT`. The output has a JSON file for each batch."""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def write(frame, batch):
    partial = output / f".{batch}.{os.getpid()}"
    partial.write_text(json.dumps({row["value"]: row["count"] for row in frame.collect()}))
    partial.rename(output / f"{batch:07}.json")


source, output = sys.argv[1], Path(sys.argv[2])
spark = SparkSession.builder.appName("Words").getOrCreate()
lines = spark.readStream.option("maxFilesPerTrigger", 1).text(source)
counts = lines.groupBy("value").count().writeStream.queryName("words").outputMode("update").foreachBatch(write)
counts.start().awaitTermination()
