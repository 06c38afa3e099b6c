"""A few samples show every failed checkpoint, even if a new job manager starts its counters at zero."""

from __future__ import annotations

from django.db import connection
from django.test.utils import CaptureQueriesContext

from monitoring.models import CounterSample
from monitoring.polling.recording import counters
from tests.monitoring.polling.recording.conftest import counted


def test_a_sample_is_written_when_something_failed_was_restored_or_fell(rows, reported, later):
    run = rows.run(rows.job())
    steps = [
        (0, {"total": 5, "completed": 5}),
        (2, {"total": 6, "completed": 5, "in_progress": 1}),  # no relevant change
        (4, {"total": 6, "completed": 6}),  # this sample is stored later
        (6, {"total": 7, "completed": 6, "failed": 1}),
        (8, {"total": 7, "completed": 6, "failed": 1}),  # no counter changed
        (10, {"total": 7, "completed": 6, "failed": 1, "restored": 1}),
        (12, {"total": 1, "completed": 1, "restored": 1}),  # a new job manager
        (80, {"total": 9, "completed": 9, "restored": 1}),  # a minute later
    ]
    for at, values in steps:
        counters.record([reported(run, checkpoints=counted(**values))], later(at))
    assert [(round((s.at - later(0)).total_seconds()), s.failed) for s in CounterSample.objects.all()] == [
        *((0, 0), (6, 1), (10, 1), (12, 0), (80, 0)),
    ]


def test_any_number_of_runs_is_one_statement(rows, reported, now):
    job = rows.job()
    runs = [rows.run(job) for _ in range(20)]
    with CaptureQueriesContext(
        connection,
    ) as asked:
        counters.record([reported(run, checkpoints=counted(total=1)) for run in runs], now)
    assert len(asked) == 1
    assert CounterSample.objects.count() == 20
