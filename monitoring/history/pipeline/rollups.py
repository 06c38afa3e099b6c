"""Compute roll-ups from checkpoints with DataFrame operations.

The input has all checkpoints of an hour, so a roll-up does not depend on its previous value: computing it twice gives
the same figures, and a correction needs no subtraction. Quantile sketches are those of Spark's functions; a sketch of
more values than it can store exactly depends on the order of the values.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from .columns import COUNTS, DAY, FIGURES, OPERATOR_FIGURES, OPERATOR_QUANTILES, OPERATOR_ROLLUPS, ROLLUPS, VERSION


def rolled(checkpoints: DataFrame, seconds: int) -> DataFrame:
    """Return one row per job and range of `seconds`, with the columns ROLLUPS and `changed`.

    `checkpoints` has the columns CHANGES. `changed`: whether a checkpoint of the range has changed.
    """
    done, failed = sf.col("status") == "COMPLETED", sf.col("status") == "FAILED"
    counts = {
        "completed": done,
        "failed": failed,
        "pending": sf.col("status") == "IN_PROGRESS",
        "completed_savepoints": done & sf.col("is_savepoint"),
        "failed_savepoints": failed & sf.col("is_savepoint"),
    }
    columns = {name: sf.count_if(which) for name, which in counts.items()}
    for figure in FIGURES:
        value = sf.when(done, sf.col(figure))
        columns |= _totals(figure, sf.sum(value), sf.min(value), sf.max(value))
        columns |= _sketch(figure, sf.sum(value), sf.kll_sketch_agg_float(value.cast("float")))
    columns["reasons"] = _counted(sf.collect_list(sf.when(failed, sf.coalesce("reason", sf.lit("")))))
    columns["changed"] = sf.coalesce(sf.bool_or("changed"), sf.lit(False))
    at = checkpoints.withColumn("start", _start(sf.coalesce("at", "hour"), seconds))
    return _rollups(at, seconds, columns, "changed")


def by_day(hours: DataFrame) -> DataFrame:
    """Return roll-ups of whole UTC days. `hours` has the roll-ups of every hour of these days with checkpoints."""
    columns = {name: sf.sum(name) for name in COUNTS}
    for figure in FIGURES:
        columns |= _merged_totals(figure) | _merged_sketches(figure)
    entries = sf.map_entries(sf.from_json("reasons", "map<string, long>"))
    columns["reasons"] = _summed(sf.flatten(sf.collect_list(entries)))
    days = hours.withColumn("start", _start(sf.unix_seconds("start"), DAY))
    return _rollups(days, DAY, columns)


def by_operator(parts: DataFrame, seconds: int) -> DataFrame:
    """Return one row per job, operator and range of `seconds`, with the columns OPERATOR_ROLLUPS.

    `parts` has the columns CHANGES, of operators only.
    """
    columns = {"completed": sf.count("status")}
    for figure in OPERATOR_FIGURES:
        columns |= _totals(figure, sf.sum(figure), sf.min(figure), sf.max(figure))
    values = sf.kll_sketch_agg_float(sf.col(OPERATOR_QUANTILES).cast("float"))
    columns |= _sketch(OPERATOR_QUANTILES, sf.sum(OPERATOR_QUANTILES), values)
    return _rollups_of_operators(parts.withColumn("start", _start(sf.col("at"), seconds)), seconds, columns)


def operators_by_day(hours: DataFrame) -> DataFrame:
    """Return roll-ups of operators of whole UTC days. `hours` has the roll-ups of every hour of these days."""
    columns = {"completed": sf.sum("completed")} | _merged_sketches(OPERATOR_QUANTILES)
    for figure in OPERATOR_FIGURES:
        columns |= _merged_totals(figure)
    return _rollups_of_operators(hours.withColumn("start", _start(sf.unix_seconds("start"), DAY)), DAY, columns)


def _rollups_of_operators(rows: DataFrame, seconds: int, columns: Mapping[str, Column]) -> DataFrame:
    keys = ("job_id", "operator", "start")
    grouped = rows.groupBy(*keys).agg(*(column.alias(name) for name, column in columns.items()))
    return grouped.withColumns(_constant(seconds)).select(*OPERATOR_ROLLUPS.names)


def _start(at: Column, seconds: int) -> Column:
    return sf.timestamp_seconds(sf.floor(at / seconds) * seconds)


def _totals(name: str, total: Column, least: Column, most: Column) -> dict[str, Column]:
    return {f"{name}_sum": total, f"{name}_min": least, f"{name}_max": most}


def _sketch(name: str, total: Column, sketch: Column) -> dict[str, Column]:
    return {f"{name}_sketch": sf.when(total.isNotNull(), sketch).otherwise(sf.lit(b""))}


def _merged_totals(figure: str) -> dict[str, Column]:
    return _totals(figure, sf.sum(f"{figure}_sum"), sf.min(f"{figure}_min"), sf.max(f"{figure}_max"))


def _merged_sketches(figure: str) -> dict[str, Column]:
    total = f"{figure}_sum"
    sketch = sf.kll_merge_agg_float(sf.when(sf.col(total).isNotNull(), sf.col(f"{figure}_sketch")))
    return _sketch(figure, sf.sum(total), sketch)


def _constant(seconds: int) -> dict[str, Column]:
    return {"seconds": sf.lit(seconds), "version": sf.lit(VERSION).cast("short")}


def _rollups(rows: DataFrame, seconds: int, columns: Mapping[str, Column], *others: str) -> DataFrame:
    grouped = rows.groupBy("job_id", "start").agg(*(column.alias(name) for name, column in columns.items()))
    return grouped.withColumns(_constant(seconds)).select(*ROLLUPS.names, *others)


def _counted(reasons: Column) -> Column:
    """Return JSON of {reason: number}, sorted by reason, or "" without reasons."""
    different = sf.array_sort(sf.array_distinct(reasons))
    numbers = sf.transform(different, lambda reason: sf.size(sf.filter(reasons, lambda each: each == reason)))
    return _json(different, numbers)


def _summed(entries: Column) -> Column:
    """Return the same as `_counted`, from pairs of a reason and its number."""
    different = sf.array_sort(sf.array_distinct(sf.transform(entries, lambda each: each["key"])))

    def number(reason: Column) -> Column:
        of_reason = sf.filter(entries, lambda each: each["key"] == reason)
        return sf.aggregate(of_reason, sf.lit(0).cast("long"), lambda total, each: total + each["value"])

    return _json(different, sf.transform(different, number))


def _json(reasons: Column, numbers: Column) -> Column:
    return sf.when(sf.size(reasons) > 0, sf.to_json(sf.map_from_arrays(reasons, numbers))).otherwise("")
