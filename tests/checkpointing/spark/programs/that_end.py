"""Programs that read all available input and end. Each one writes the same rows to another sink."""

from __future__ import annotations

from typing import Any

from checkpointing.sinks.files import FileSink
from checkpointing.sinks.postgres import PostgresSink


def _rows(spark: Any, args: dict[str, str]) -> Any:
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(args["input"])
    return lines.writeStream.queryName("rows")


def files(spark: Any, args: dict[str, str]) -> Any:
    return _rows(spark, args).foreachBatch(FileSink(args["output"], "json")).trigger(availableNow=True)


def spark_files(spark: Any, args: dict[str, str]) -> Any:
    return _rows(spark, args).format("json").option("path", args["output"]).trigger(availableNow=True)


def table(spark: Any, args: dict[str, str]) -> Any:
    return _rows(spark, args).foreachBatch(PostgresSink(args["dsn"], args["table"])).trigger(availableNow=True)


def once(spark: Any, args: dict[str, str]) -> Any:
    return _rows(spark, args).foreachBatch(FileSink(args["output"], "json")).trigger(once=True)
