"""Programs of the whole-loop tests. A file sets whether the program works, is slow or fails."""

import json
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import DataStreamWriter

from checkpointing.sinks.postgres import PostgresSink


def moody_counts(spark: SparkSession, args: dict[str, str]) -> DataStreamWriter:
    """Count flights by carrier. The file `mood` sets whether the sink works, is slow or fails."""
    flights = spark.readStream.schema("carrier STRING").json(args["input"])
    connections = json.loads(Path(args["connections"]).read_text())
    sink = PostgresSink(connections["database"], "moody_counts", key=["carrier"])

    def write(batch, batch_id):
        match Path(args["mood"]).read_text():
            case "slow":
                time.sleep(9)
            case "broken":
                raise ConnectionError("the carriers' service is down")
        sink(batch, batch_id)

    counts = flights.groupBy("carrier").agg(sf.count("*").alias("flights"))
    return counts.writeStream.outputMode("update").trigger(processingTime="1 second").foreachBatch(write)
