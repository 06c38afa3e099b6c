"""Objectives: which one applies to a job, and how far its budget is used up."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from monitoring.alerts.kinds.objective_budget import used_percent
from monitoring.alerts.objectives import MEASURED_EVERY, measure_due, objectives_of
from monitoring.alerts.scope import watched_jobs
from monitoring.models import Objective, ObjectiveBudget, ObjectiveDay, Savepoint, SavepointOrigin, SavepointState

GOAL = {"percent": 99, "limit_ms": 30_000, "days": 30}
ABORTED = "Checkpoint Coordinator is suspending."


@pytest.fixture
def run(rows):
    return rows.run(rows.job(), started_at=rows.now - timedelta(days=40))


def completed(rows, run, *durations, days=0):
    for duration in durations:
        rows.checkpoint(run, triggered_at=rows.ago(600) - timedelta(days=days), end_to_end_duration=duration)


def budget(run):
    return ObjectiveBudget.objects.get(job=run.job)


def test_own_objective_comes_before_those_of_labels_and_of_all_jobs(rows):
    own, labelled, other = (rows.job(labels={"team": team}) for team in ("a", "b", "c"))
    everything = Objective.objects.create(**GOAL)
    of_label = Objective.objects.create(selector="team=b", **GOAL)
    Objective.objects.create(selector="team=b|c,team!=c", **GOAL)
    of_job = Objective.objects.create(job=own, **GOAL)
    assert objectives_of(watched_jobs()) == {own.pk: of_job, labelled.pk: of_label, other.pk: everything}


def test_an_invalid_selector_selects_no_job(rows):
    rows.job()
    Objective.objects.create(selector="team==b", **GOAL)
    assert objectives_of(watched_jobs()) == {}


def test_slow_and_failed_checkpoints_miss_the_objective(rows, run, now):
    Objective.objects.create(job=run.job, **GOAL)
    completed(rows, run, 1000, 29_999, 30_000)
    completed(rows, run, 45_000, days=29)
    completed(rows, run, 90_000, days=30)  # older than the objective's days
    rows.failed(run, 900, rows.ago(100))
    rows.checkpoint(run, status="IN_PROGRESS")
    assert measure_due(now) == 1
    assert (budget(run).counted, budget(run).missed) == (5, 3)
    assert budget(run).used_percent == pytest.approx(6000)
    assert budget(run).left_percent == pytest.approx(-5900)


def test_a_checkpoint_aborted_by_a_requested_stop_does_not_count(rows, run, now):
    Objective.objects.create(job=run.job, **GOAL)
    completed(rows, run, 1000)
    rows.failed(run, 901, rows.ago(50), ABORTED)
    assert measure_due(now) == 1
    assert (budget(run).counted, budget(run).missed) == (2, 1)
    order = {"origin": SavepointOrigin.MANUAL, "state": SavepointState.COMPLETED, "stops_job": True}
    Savepoint.objects.create(job=run.job, run=run, requested_at=rows.ago(60), **order)
    measure_due(now + MEASURED_EVERY)
    assert (budget(run).counted, budget(run).missed) == (1, 0)


def test_a_job_without_checkpoints_has_no_share(rows, run, now):
    Objective.objects.create(job=run.job, **GOAL)
    measure_due(now)
    assert (budget(run).used_percent, budget(run).left_percent) == (None, None)


def test_a_budget_is_measured_every_five_minutes_and_at_once_if_the_objective_changes(rows, run, now):
    objective = Objective.objects.create(job=run.job, **GOAL)
    completed(rows, run, 1000, 20_000)
    assert measure_due(now) == 1
    assert measure_due(now + timedelta(seconds=30)) == 0
    objective.limit_ms = 20_000
    objective.save()
    assert measure_due(now + timedelta(seconds=60)) == 1
    assert (budget(run).limit_ms, budget(run).missed) == (20_000, 1)
    assert measure_due(now + timedelta(seconds=60) + MEASURED_EVERY) == 1


def test_days_before_yesterday_are_counted_once(rows, run, now):
    Objective.objects.create(job=run.job, **GOAL)
    completed(rows, run, 1000, days=3)
    measure_due(now)
    assert ObjectiveDay.objects.filter(job=run.job).count() == 30
    completed(rows, run, 99_000, days=3)  # a day that ended this long ago is not counted again
    completed(rows, run, 99_000, days=1)
    measure_due(now + MEASURED_EVERY)
    assert (budget(run).counted, budget(run).missed) == (2, 1)


def test_without_an_objective_the_budget_is_deleted(rows, run, now):
    Objective.objects.create(job=run.job, **GOAL)
    measure_due(now)
    Objective.objects.all().delete()
    assert measure_due(now) == 0
    assert not ObjectiveBudget.objects.exists()


def test_the_number_of_statements_does_not_depend_on_the_number_of_jobs(rows, now):
    Objective.objects.create(**GOAL)
    counts = []
    for _ in range(2):
        for _ in range(3):
            rows.failed(rows.run(rows.job()), 1, rows.ago(30))
        ObjectiveBudget.objects.all().delete()
        ObjectiveDay.objects.all().delete()
        with CaptureQueriesContext(connection) as statements:
            measure_due(now)
        counts.append(len(statements))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("counted", "missed", "percent", "used"),
    [(1000, 10, 99, 100), (1000, 1, 99.9, 100), (7, 0, 99, 0), (0, 0, 99, None)],
)
def test_a_budget_that_is_used_up_exactly_is_at_100(counted, missed, percent, used):
    assert used_percent(counted, missed, percent) == used
