"""Store a report. A repeated one changes nothing: a batch is known by its run and its number."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Max, Min

from monitoring.engine.errors import Malformed
from monitoring.engine.reported.report import BatchReport, QueryReport, Report
from monitoring.models import Cluster, ReportedBatch, ReportedMinute, ReportedRun
from monitoring.reasons.engines import EngineReason

# The agent names its running queries every 30 seconds.
SILENT = timedelta(minutes=2)
BATCHES_KEPT = 100
KEPT = timedelta(days=7)
MINUTES_KEPT = timedelta(days=1)
MOST_RUNS = 2_000


@transaction.atomic
def store(cluster: Cluster, report: Report, now: datetime) -> int:
    """Store the report, and return the number of new batches.

    Raises:
        Malformed: the cluster has too many runs.
    """
    ReportedRun.objects.filter(cluster=cluster, reported_at__lt=now - KEPT).delete()
    queries = {each.query.run_id: each.query for each in reversed(report.batches)}
    queries |= {each.run_id: each for each in report.queries}
    new = _create_missing(cluster, report, queries, now)
    locked = ReportedRun.objects.select_for_update().filter(cluster=cluster, run_id__in=queries).order_by("pk")
    runs = {run.run_id: run for run in locked}
    for run_id, run in runs.items():
        _update(run, queries[run_id], report, now)
    _store_minutes(runs, report.batches, now)
    stored = _store_batches(runs, report.batches)
    for run in runs.values():
        run.save()
    _end_replaced(cluster, {queries[run_id].query_id for run_id in new})
    return stored


def _create_missing(
    cluster: Cluster, report: Report, queries: Mapping[str, QueryReport], now: datetime
) -> Collection[str]:
    """Create the rows of new runs, and return their ids."""
    rows = ReportedRun.objects.filter(cluster=cluster)
    new = sorted(queries.keys() - set(rows.filter(run_id__in=queries).values_list("run_id", flat=True)))
    if new and rows.count() + len(new) > MOST_RUNS:
        raise Malformed(EngineReason.TOO_MANY(where="report.queries", most=MOST_RUNS))
    for each in (queries[run_id] for run_id in new):
        started_at = each.started_at or each.ended_at or now
        name = _job_name(cluster, report.program, each, now)
        values = {"query_id": each.query_id, "name": name, "started_at": started_at, "reported_at": now}
        ReportedRun.objects.get_or_create(cluster=cluster, run_id=each.run_id, defaults=values)
    return new


def _job_name(cluster: Cluster, program: str, query: QueryReport, now: datetime) -> str:
    """Return the name of the query's job: that of its earlier runs, or the names of the program and the query.

    If another query with these names runs, the job also has the query's id in its name.
    """
    rows = ReportedRun.objects.filter(cluster=cluster)
    earlier = rows.filter(query_id=query.query_id).values_list("name", flat=True).first()
    if earlier is not None:
        return earlier
    name = f"{program}/{query.name or query.query_id[:8]}"[:480]
    others = rows.filter(name=name, ended_at=None, reported_at__gt=now - SILENT)
    return f"{name} {query.query_id[:8]}" if others.exists() else name


def _update(run: ReportedRun, query: QueryReport, report: Report, now: datetime) -> None:
    run.program, run.spark_version = report.program, report.spark_version
    run.reported_at = max(run.reported_at, now)
    run.dropped = max(run.dropped, query.dropped)
    if query.started_at is not None:
        run.started_at = min(run.started_at, query.started_at)
    run.idle_at = max(filter(None, (run.idle_at, query.idle_at)), default=None)
    if query.ended_at is not None and (run.ended_at is None or run.was_replaced):
        run.ended_at, run.exception, run.was_replaced = query.ended_at, query.exception, False


def _store_minutes(runs: dict[str, ReportedRun], batches: Iterable[BatchReport], now: datetime) -> None:
    """Add the rows of batches that are newer than the stored ones to their minutes. The caller has locked the runs."""
    rows: dict[tuple[int, datetime], int | None] = {}
    newest = {run.pk: run.newest_batch for run in runs.values()}
    for each in sorted(batches, key=lambda each: each.batch_id):
        run = runs[each.query.run_id].pk
        before = newest[run]
        if before is not None and each.batch_id <= before:
            continue
        newest[run] = each.batch_id
        follows = before is None or each.batch_id == before + 1
        if now - each.started_at < MINUTES_KEPT:
            minute = (run, each.started_at.replace(second=0, microsecond=0))
            rows[minute] = _sum(rows.get(minute, 0), each.progress["numInputRows"] if follows else None)
    if not rows:
        return
    minutes = ReportedMinute.objects.filter(run__in={run for run, _ in rows})
    minutes.filter(at__lt=now - MINUTES_KEPT).delete()
    for run, at, stored in minutes.filter(at__in={at for _, at in rows}).values_list("run_id", "at", "rows"):
        if (run, at) in rows:
            rows[run, at] = _sum(rows[run, at], stored)
    ReportedMinute.objects.bulk_create(
        [ReportedMinute(run_id=run, at=at, rows=read) for (run, at), read in rows.items()],
        update_conflicts=True,
        unique_fields=("run", "at"),
        update_fields=("rows",),
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _store_batches(runs: dict[str, ReportedRun], batches: Iterable[BatchReport]) -> int:
    """Store new batches and delete those that are too old. The caller has locked the runs."""
    rows = [
        ReportedBatch(
            run=runs[each.query.run_id],
            batch_id=each.batch_id,
            started_at=each.started_at,
            duration_ms=each.duration_ms,
            state_size=each.state_size,
            progress=each.progress,
        )
        for each in batches
    ]
    changed = {row.run_id for row in rows}
    before = ReportedBatch.objects.filter(run__in=changed).count()
    ReportedBatch.objects.bulk_create(rows, ignore_conflicts=True)
    stored = ReportedBatch.objects.filter(run__in=changed).count() - before
    for run in runs.values():
        if run.pk not in changed:
            continue
        found = run.batches.aggregate(newest=Max("batch_id"), first=Min("batch_id"), last=Max("pk"))
        run.newest_batch, run.last_id = found["newest"], found["last"]
        run.first_batch = found["first"] if run.first_batch is None else min(run.first_batch, found["first"])
        run.batches.filter(batch_id__lte=found["newest"] - BATCHES_KEPT).delete()
    return stored


def _end_replaced(cluster: Cluster, query_ids: Iterable[str]) -> None:
    """End all runs of the queries but the newest: Spark allows one run of a checkpoint location at a time."""
    for query_id in query_ids:
        siblings = ReportedRun.objects.filter(cluster=cluster, query_id=query_id)
        newest = siblings.order_by("-started_at", "-pk").first()
        if newest is not None:
            older = siblings.filter(ended_at=None, started_at__lt=newest.started_at)
            older.update(ended_at=newest.started_at, was_replaced=True)
