"""The job's program: it computes roll-ups of changed checkpoints and stores them exactly once.

waymark_history.program:rollups --dsn-file /path [--every "60 seconds"] [--rows-per-batch 1000000]
    [--rows-per-partition 100000]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from checkpointing.sinks.postgres import PostgresSink, write_together

from .changes import CheckpointChanges
from .columns import HOUR, MINUTE
from .rollups import by_day, by_operator, operators_by_day, rolled
from .stored import StoredHours, stored_hours

TABLE, OPERATORS_TABLE = "monitoring_rollup", "monitoring_operatorrollup"
LIMITS = frozenset(("rows-per-batch", "rows-per-partition"))
_KEY = ["job_id", "seconds", "start"]


def rollups(spark: Any, args: dict[str, str]) -> Any:
    spark.dataSource.register(CheckpointChanges)
    dsn_file = args["dsn-file"]
    source = spark.readStream.format("waymark-checkpoint-changes").option("dsn-file", dsn_file)
    for limit in LIMITS & args.keys():
        source = source.option(limit, args[limit])
    writer = source.load().writeStream.queryName("rollups").outputMode("append").foreachBatch(RollupSink(dsn_file))
    return writer.trigger(processingTime=args.get("every", "60 seconds"))


class RollupSink(PostgresSink):
    """Stores the roll-ups of a batch of checkpoints in one transaction, with the batch's number."""

    def __init__(self, dsn_file: str) -> None:
        dsn = Path(dsn_file).read_text().strip()
        super().__init__(dsn, TABLE, key=_KEY, shared=True)
        self._operators = PostgresSink(dsn, OPERATORS_TABLE, key=[*_KEY, "operator"], shared=True)
        self._dsn_file = dsn_file

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = frame.persist()
        checkpoints = rows.where("operator IS NULL")
        hours = rolled(checkpoints, HOUR).drop("changed").persist()
        used_again = [rows, hours]
        try:
            stored = stored_hours(self._dsn_file, hours.select("job_id", sf.unix_seconds("start")).toArrow())
            recent = checkpoints.where(sf.col("at") >= stored.minutes_from)
            minutes = rolled(recent, MINUTE).where("changed").drop("changed").persist()
            used_again.append(minutes)
            days = by_day(hours.unionByName(frame.sparkSession.createDataFrame(stored.others)))
            kept = hours.where(sf.unix_seconds("start") >= stored.hours_from)
            of_jobs = minutes.unionByName(kept).unionByName(days)
            of_operators = _of_operators(rows.where("operator IS NOT NULL"), minutes, stored)
            write_together([(self, of_jobs), (self._operators, of_operators)], batch)
        finally:
            for each in used_again:
                each.unpersist()

    def close(self) -> None:
        self._operators.close()
        super().close()


def _of_operators(parts: DataFrame, changed: DataFrame, stored: StoredHours) -> DataFrame:
    """Return the roll-ups of operators. `changed`: the roll-ups of the minutes that have changed."""
    recent = by_operator(parts.where(sf.col("at") >= stored.minutes_from), MINUTE)
    minutes = recent.join(changed.select("job_id", "start"), ["job_id", "start"], "left_semi")
    hours = by_operator(parts, HOUR)
    days = operators_by_day(hours.unionByName(parts.sparkSession.createDataFrame(stored.operators)))
    kept = hours.where(sf.unix_seconds("start") >= stored.hours_from)
    return minutes.unionByName(kept).unionByName(days)
