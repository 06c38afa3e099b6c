"""Every exception that the engine reports is stored once."""

from __future__ import annotations

from django.db import connection
from django.test.utils import CaptureQueriesContext

from monitoring.models import RunException
from monitoring.polling.recording import exceptions
from tests.monitoring.polling.recording.conftest import failure


def test_an_exception_is_stored_with_its_cause_task_and_host(rows, reported):
    run = rows.run(rows.job())
    exceptions.record([reported(run, exceptions=(failure(),))])
    row = RunException.objects.get()
    assert (row.run, row.name, row.message, row.root_cause) == (
        *(run, "java.io.IOException", "Could not write", "the sink is gone"),
    )
    assert (row.task, row.host, row.at) == ("Sink: routes (2/4)", "tm-1:40123", rows.ago(5))


def test_a_repeated_exception_is_one_row(rows, reported):
    run, other = rows.run(rows.job()), rows.run(rows.job())
    for _ in range(3):
        exceptions.record([reported(run, exceptions=(failure(5), failure(9)))])
    exceptions.record([reported(other, exceptions=(failure(5),))])
    assert RunException.objects.filter(run=run).count() == 2
    assert RunException.objects.filter(run=other).count() == 1


def test_none_is_dropped_however_many_there_are(rows, reported):
    run = rows.run(rows.job())
    for batch in range(5):
        exceptions.record([reported(run, exceptions=tuple(failure(20 * batch + n) for n in range(20)))])
    assert RunException.objects.count() == 100


def test_any_number_of_exceptions_needs_two_statements(rows, reported):
    runs = [rows.run(rows.job()) for _ in range(10)]
    with CaptureQueriesContext(connection) as asked:
        exceptions.record([reported(run, exceptions=tuple(failure(n) for n in range(20))) for run in runs])
    assert [query["sql"].split()[0] for query in asked] == ["SELECT", "INSERT"]
