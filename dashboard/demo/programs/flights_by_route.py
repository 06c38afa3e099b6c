"""Count the flights of each aircraft on each route with their duration, and upsert the keyed state into PostgreSQL."""

import json
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import DataStreamWriter

from checkpointing.sinks.postgres import PostgresSink

FLIGHT = (
    "id LONG, time_hour TIMESTAMP, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, "
    "air_time INT, distance INT"
)


def flights_by_route(spark: SparkSession, args: dict[str, str]) -> DataStreamWriter:
    flights = spark.readStream.schema(FLIGHT).option("maxFilesPerTrigger", 20).json(args["input"])
    routes = flights.groupBy(sf.coalesce("tailnum", sf.lit("unknown")).alias("tailnum"), "origin", "dest").agg(
        sf.count("*").alias("flights"),
        sf.sum("air_time").alias("air_time"),
        sf.sum("distance").alias("distance"),
        sf.max("time_hour").alias("last_flight"),
    )
    dsn = json.loads(Path(args["connections"]).read_text())["database"]
    sink = PostgresSink(dsn, "demo_flights_by_route", key=["tailnum", "origin", "dest"], shared=True)
    return routes.writeStream.outputMode("update").trigger(processingTime="4 seconds").foreachBatch(sink)
