"""The job's program: it computes roll-ups of changed checkpoints and stores them exactly once.

waymark_history.program:rollups --dsn-file /path [--every "60 seconds"] [--rows-per-batch 1000000]
    [--rows-per-partition 100000]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from checkpointing.sinks.postgres import PostgresSink

from .changes import CheckpointChanges

TABLE = "monitoring_rollup"
LIMITS = frozenset(("rows-per-batch", "rows-per-partition"))
_KEY = ["job_id", "seconds", "start"]


def rollups(spark: Any, args: dict[str, str]) -> Any:
    spark.dataSource.register(CheckpointChanges)
    dsn_file = args["dsn-file"]
    source = spark.readStream.format("waymark-checkpoint-changes").option("dsn-file", dsn_file)
    for limit in LIMITS & args.keys():
        source = source.option(limit, args[limit])
    rolled = source.load()
    sink = PostgresSink(Path(dsn_file).read_text().strip(), TABLE, key=_KEY, shared=True)
    writer = rolled.writeStream.queryName("rollups").outputMode("append").foreachBatch(sink)
    return writer.trigger(processingTime=args.get("every", "60 seconds"))
