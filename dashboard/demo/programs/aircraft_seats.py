"""Count flights and seats by manufacturer. The aircraft of every flight is looked up in a register over HTTP.

At times the register is slow, so the job's batches are slow. At times it is broken, so the job fails.
"""

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import DataStreamWriter

from checkpointing.sinks.postgres import PostgresSink

FLIGHT = "id LONG, tailnum STRING"


def look_up(register: str, tailnums: list[str]) -> dict[str, dict[str, Any]]:
    body, headers = json.dumps(tailnums).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{register}/aircraft", body, headers)  # noqa: S310  (the register is http)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        return dict(json.load(answer))


def with_aircraft(connections: str) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    def add(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        register = json.loads(Path(connections).read_text())["register"]
        for flights in batches:
            known = look_up(register, sorted(flights["tailnum"].dropna().unique()))
            aircraft = [known.get(tailnum, {}) for tailnum in flights["tailnum"]]
            manufacturers = [plane.get("manufacturer") or "not registered" for plane in aircraft]
            yield pd.DataFrame(
                {"manufacturer": manufacturers, "seats": [plane.get("seats") or 0 for plane in aircraft]}
            )

    return add


def aircraft_seats(spark: SparkSession, args: dict[str, str]) -> DataStreamWriter:
    flights = spark.readStream.schema(FLIGHT).option("maxFilesPerTrigger", 20).json(args["input"])
    seats = flights.mapInPandas(with_aircraft(args["connections"]), "manufacturer STRING, seats LONG")
    offered = seats.groupBy("manufacturer").agg(sf.count("*").alias("flights"), sf.sum("seats").alias("seats"))
    dsn = json.loads(Path(args["connections"]).read_text())["database"]
    sink = PostgresSink(dsn, "demo_seats_by_manufacturer", key=["manufacturer"], shared=True)
    return offered.writeStream.outputMode("update").trigger(processingTime="4 seconds").foreachBatch(sink)
