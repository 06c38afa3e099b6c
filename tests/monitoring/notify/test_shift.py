"""A shift summary has what happened in its time, and survives its storage as JSON."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from monitoring.models import (
    AttemptState,
    Incident,
    IncidentState,
    Outage,
    OutageKind,
    RestartAttempt,
    Savepoint,
    SavepointOrigin,
    SavepointState,
)
from monitoring.notify.shift import Scope, as_json, from_stored, read_shift
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.columns import columns

HOURS = timedelta(hours=12)
HOUR = 3600


def incident(rows, job, opened, resolved=None, severity="warning"):
    state = IncidentState.OPEN if resolved is None else IncidentState.RESOLVED
    return Incident.objects.create(
        job=job,
        cluster=job.cluster,
        severity=severity,
        state=state,
        opened_at=rows.ago(opened),
        resolved_at=None if resolved is None else rows.ago(resolved),
        **columns("sentence", AlertReason.TEST(channel="c")),
    )


def attempt(rows, job, began, state, **fields):
    return RestartAttempt.objects.create(
        job=job,
        epoch=job.restart_attempts.count() + 1,
        trigger="automatic",
        state=state,
        reason="",
        engine_job_id="a" * 32,
        created_at=rows.ago(began),
        deadline_at=rows.now,
        **fields,
    )


def read(rows, **scope):
    return read_shift(rows.now - HOURS, rows.now, Scope(**scope) if scope else None)


def test_incidents_are_counted_by_what_happened_to_them(rows):
    job = rows.job()
    incident(rows, job, 20 * HOUR, 15 * HOUR)  # before the time range
    old = incident(rows, job, 20 * HOUR)
    ended = incident(rows, job, 20 * HOUR, HOUR)
    critical = incident(rows, job, 2 * HOUR, severity="critical")
    short = incident(rows, job, 3 * HOUR, 2 * HOUR)
    shift = read(rows)
    assert (shift.opened, shift.resolved, shift.unresolved) == (2, 2, 2)
    assert [each.id for each in shift.incidents] == [critical.pk, old.pk, short.pk, ended.pk]


def test_incidents_unresolved_at_the_end_of_the_shift_count_as_unresolved(rows):
    incident(rows, rows.job(), 20 * HOUR, -HOUR)
    assert (read(rows).resolved, read(rows).unresolved) == (0, 1)


def test_restarts_are_counted_by_their_outcome(rows):
    first, second, third = rows.job(), rows.job(), rows.job()
    attempt(rows, first, 30 * HOUR, AttemptState.FAILED, ended_at=rows.ago(29 * HOUR))
    attempt(rows, first, 13 * HOUR, AttemptState.SUCCEEDED, ended_at=rows.ago(11 * HOUR))
    attempt(rows, second, HOUR, AttemptState.FAILED, ended_at=rows.now, error="It fails.")
    attempt(rows, third, 60, AttemptState.LAUNCHING)
    shift = read(rows)
    assert (shift.restarts_succeeded, shift.restarts_failed, shift.restarts_other) == (1, 1, 1)
    assert [each.job for each in shift.restarts] == [third.name, second.name, first.name]
    assert shift.restarts[1].error == "It fails."


def test_failed_savepoints_are_listed(rows):
    run = rows.run(rows.job())
    values = {"job": run.job, "run": run, "origin": SavepointOrigin.MANUAL, "failure": "No space left."}
    for hours, state in ((13, SavepointState.FAILED), (2, SavepointState.FAILED), (1, SavepointState.COMPLETED)):
        Savepoint.objects.create(state=state, requested_at=rows.ago(hours * HOUR), **values)
    shift = read(rows)
    assert shift.savepoints_failed == 1
    assert shift.savepoints[0].failure == "No space left."


def test_the_longest_time_without_polls_is_cut_at_both_ends(rows):
    cluster, other = rows.cluster(), rows.cluster()
    Outage.objects.create(
        cluster=cluster, kind=OutageKind.NO_ANSWER, began_at=rows.ago(13 * HOUR), ended_at=rows.ago(11 * HOUR)
    )
    Outage.objects.create(cluster=other, kind=OutageKind.NOT_POLLED, began_at=rows.ago(600))
    Outage.objects.create(
        cluster=other, kind=OutageKind.NO_ANSWER, began_at=rows.ago(20 * HOUR), ended_at=rows.ago(13 * HOUR)
    )
    shift = read(rows)
    assert shift.blind_s == HOUR
    assert [(each.cluster, each.seconds) for each in shift.outages] == [(cluster.name, HOUR), (other.name, 600)]


def test_jobs_with_the_most_failures_come_first_without_requested_aborts(rows):
    calm, loud = rows.run(rows.job()), rows.run(rows.job())
    for number in range(3):
        rows.failed(loud, number + 1, rows.ago(60 * number))
    rows.failed(loud, 9, rows.ago(13 * HOUR))
    rows.failed(calm, 1, rows.ago(100))
    rows.failed(calm, 2, rows.ago(50), "Checkpoint Coordinator is suspending.")
    assert [(each.id, each.failed) for each in read(rows).jobs] == [(loud.job_id, 3), (calm.job_id, 2)]
    order = {"origin": SavepointOrigin.MANUAL, "state": SavepointState.COMPLETED, "stops_job": True}
    Savepoint.objects.create(job=calm.job, run=calm, requested_at=rows.ago(55), **order)
    assert [each.failed for each in read(rows).jobs] == [3, 1]
    assert [each.id for each in read(rows, jobs=[calm.job_id]).jobs] == [calm.job_id]


def test_a_shift_without_events_is_quiet(rows):
    rows.run(rows.job())
    assert read(rows).is_quiet


def test_a_summary_survives_its_storage(rows):
    job = rows.job()
    incident(rows, job, HOUR, 60)
    attempt(rows, job, HOUR, AttemptState.FAILED, **columns("error", AlertReason.TEST(channel="c")))
    rows.failed(rows.run(job), 1, rows.ago(60))
    Outage.objects.create(cluster=job.cluster, kind=OutageKind.NO_ANSWER, began_at=rows.ago(60))
    shift = read(rows)
    assert from_stored(json.loads(json.dumps(as_json(shift)))) == shift


@pytest.mark.parametrize("jobs", [2, 40])
def test_the_number_of_statements_is_constant(rows, jobs, django_assert_num_queries):
    for _ in range(jobs):
        run = rows.run(rows.job())
        incident(rows, run.job, HOUR)
        attempt(rows, run.job, HOUR, AttemptState.SUCCEEDED)
        rows.failed(run, 1, rows.ago(60))
    with django_assert_num_queries(12):
        read(rows)
