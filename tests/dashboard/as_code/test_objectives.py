"""Objectives are exported and imported as YAML. A file without objectives changes none."""

from __future__ import annotations

from datetime import datetime

import pytest

from dashboard.access.roles import Role
from dashboard.as_code.applying import apply
from dashboard.as_code.export import export
from dashboard.as_code.plan import plan
from monitoring.models import Job, Objective
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
TEXT = """\
objectives:
  - percent: 99.5
    limit: 30 s
    days: 30
  - labels: team=air
    percent: 99
    limit: 1 min
    days: 7
  - cluster: waymark
    job: flights
    percent: 95
    limit: 500 ms
    days: 1
"""


@pytest.fixture
def job(now: datetime) -> Job:
    return make.make_job(make.make_cluster(now), "flights")


def test_export_and_import_round_trip(job: Job, now: datetime) -> None:
    assert len(apply(TEXT, Role.OPERATOR, "olga", now)) == 3
    rows = Objective.objects.order_by("limit_ms").values_list("job", "selector", "percent", "limit_ms", "days")
    assert list(rows) == [(job.pk, "", 95, 500, 1), (None, "", 99.5, 30_000, 30), (None, "team=air", 99, 60_000, 7)]
    assert export(Role.OPERATOR).endswith(TEXT)
    assert plan(export(Role.OPERATOR), Role.OPERATOR).changes == []


def test_a_change_names_both_values(job: Job, now: datetime) -> None:
    apply(TEXT, Role.OPERATOR, "olga", now)
    (change,) = plan(TEXT.replace("limit: 1 min", "limit: 2 min"), Role.OPERATOR).changes
    assert (change.what, change.verb) == ("objective of team=air", "change")
    assert change.fields == {"limit": ("1 min", "2 min")}
    apply(TEXT.replace("limit: 1 min", "limit: 2 min"), Role.OPERATOR, "olga", now)
    assert Objective.objects.get(selector="team=air").limit_ms == 120_000


def test_a_file_without_a_section_for_objectives_changes_none(job: Job, now: datetime) -> None:
    apply(TEXT, Role.OPERATOR, "olga", now)
    apply("rules: []\n", Role.OPERATOR, "olga", now, prune=True)
    assert Objective.objects.count() == 3


def test_pruning_deletes_the_objectives_that_the_file_omits(job: Job, now: datetime) -> None:
    apply(TEXT, Role.OPERATOR, "olga", now)
    kept = TEXT.partition("  - cluster")[0]
    apply(kept, Role.OPERATOR, "olga", now)
    assert Objective.objects.count() == 3
    apply(kept, Role.OPERATOR, "olga", now, prune=True)
    assert {each.selector for each in Objective.objects.all()} == {"", "team=air"}
    assert not Objective.objects.filter(job=job).exists()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("percent: 95", "percent: 100", "line 11: percent is '100': Enter a number from 50 to 99.99."),
        ("limit: 500 ms", "limit: 500", "line 12: limit is '500': Enter a number and a unit"),
        ("job: flights", "job: trains", "line 10: job is 'trains of cluster waymark': there is no such job."),
        (
            "days: 7",
            "day: 7",
            "line 8: day is '7': no such key: allowed are cluster, days, job, labels, limit, percent",
        ),
        ("labels: team=air", "labels: team==air", "line 5: labels is 'team==air': “team==air”"),
        ("  - labels: team=air\n    percent", "  - percent", "line 5: objective of all jobs occurs twice"),
        ("job: flights", "job: flights\n    labels: a=b", "line 11: labels is 'a=b': an objective of one job has no"),
    ],
)
def test_errors_name_the_line(job: Job, old: str, new: str, expected: str) -> None:
    (problem,) = plan(TEXT.replace(old, new), Role.OPERATOR).problems
    assert str(problem).startswith(expected)
