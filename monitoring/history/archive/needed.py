"""Select the few rows of a span that Waymark still needs: they stay in PostgreSQL and are also in the archive.

Polls recognize checkpoints that the engine lists, restarts need a snapshot, and pages show the newest checkpoints. So
these stay: the newest checkpoints of each job; for each run that is still polled, the newest failed one, savepoint and
completed checkpoint, which an engine lists at any age; and those to which a savepoint refers.
"""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.db.models import Max

from monitoring.history.archive.spans import Span
from monitoring.models import ArchivedKind, Cluster

# Rows that stay in PostgreSQL for each job. If an engine lists more checkpoints, as many rows stay.
NEWEST = 100
CANDIDATES = 20  # completed checkpoints that may still be restored, as in recovery/states.py

_NEWEST_OF_JOB = """
SELECT newest.id FROM monitoring_job j
CROSS JOIN LATERAL (
    SELECT c.id, c.triggered_at FROM monitoring_run r
    CROSS JOIN LATERAL (
        SELECT id, triggered_at FROM monitoring_checkpoint WHERE run_id = r.id {which}
        ORDER BY triggered_at DESC LIMIT {most}
    ) c
    WHERE r.job_id = j.id ORDER BY c.triggered_at DESC LIMIT {most}
) newest WHERE newest.triggered_at >= %(start)s AND newest.triggered_at < %(end)s
"""
_NEWEST_OF_RUN = """
SELECT newest.id FROM monitoring_run r
CROSS JOIN LATERAL (
    SELECT id, triggered_at FROM monitoring_checkpoint WHERE run_id = r.id AND {which}
    ORDER BY triggered_at DESC LIMIT 1
) newest
WHERE NOT r.final_read_done AND newest.triggered_at >= %(start)s AND newest.triggered_at < %(end)s
"""
_KINDS = ("status = 'FAILED'", "status = 'COMPLETED' AND is_savepoint", "status = 'COMPLETED' AND NOT is_savepoint")
_CHECKPOINTS = " UNION ".join((
    "SELECT k.id FROM {partition} k JOIN monitoring_savepoint s ON s.checkpoint_id = k.id",
    "SELECT id FROM {partition} WHERE NOT final",
    _NEWEST_OF_JOB.format(which="", most="%(newest)s"),
    _NEWEST_OF_JOB.format(which="AND status = 'COMPLETED' AND NOT discarded", most=CANDIDATES),
    *(_NEWEST_OF_RUN.format(which=which) for which in _KINDS),
))  # fmt: skip
# The next value of a counter is compared with its newest sample.
_SAMPLES = """
SELECT newest.id FROM monitoring_run r
CROSS JOIN LATERAL (SELECT id, at FROM monitoring_countersample WHERE run_id = r.id ORDER BY at DESC LIMIT 1) newest
WHERE NOT r.final_read_done AND newest.at >= %(start)s AND newest.at < %(end)s
"""


def needed(span: Span) -> dict[ArchivedKind, list[int]]:
    """Return the keys of these rows by kind. For operators, these are the keys of their checkpoints."""
    found: dict[ArchivedKind, list[int]] = {}
    if partition := span.partitions.get(ArchivedKind.CHECKPOINTS):
        found[ArchivedKind.CHECKPOINTS] = _keys(_CHECKPOINTS.replace("{partition}", partition), span)
        found[ArchivedKind.OPERATORS] = found[ArchivedKind.CHECKPOINTS]
    if ArchivedKind.SAMPLES in span.partitions:
        found[ArchivedKind.SAMPLES] = _keys(_SAMPLES, span)
    return found


def _keys(statement: str, span: Span) -> list[int]:
    longest = Cluster.objects.aggregate(longest=Max("history_length"))["longest"] or 0
    parameters: dict[str, Any] = {"start": span.start, "end": span.end, "newest": max(NEWEST, longest)}
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return [key for (key,) in cursor.fetchall()]
