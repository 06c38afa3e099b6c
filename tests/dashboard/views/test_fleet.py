from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import Cluster
from tests.dashboard import builders as make
from tests.dashboard import scenes

pytestmark = pytest.mark.django_db
Queries = Callable[[int], Any]


def test_with_nothing_it_says_what_to_do_next(operator: Client) -> None:
    assert "manage.py up --demo" in operator.get(reverse("fleet")).content.decode()


def test_with_a_cluster_and_no_job_it_says_how_to_submit_one(operator: Client, now: datetime) -> None:
    make.make_cluster(now)
    assert "manage.py submit" in operator.get(reverse("fleet")).content.decode()


def test_the_most_urgent_job_comes_first_and_all_are_counted(operator: Client, now: datetime) -> None:
    scenes.troubled_fleet(now)
    response = operator.get(reverse("fleet"))
    rows = response.context["fleet"].rows.object_list
    assert rows[0].facts.job.name == "orders-enrich"
    counts = {level.word: count for level, count in response.context["levels"]}
    assert counts == {"failing": 1, "degraded": 2, "unknown": 3, "healthy": 18, "ended": 0}


def test_a_silent_cluster_is_named_with_since_when(operator: Client, now: datetime) -> None:
    scenes.troubled_fleet(now)
    page = operator.get(reverse("fleet")).content.decode()
    assert "apac does not answer" in page
    assert "was RUNNING" in page


@pytest.mark.parametrize(
    ("query", "expected"),
    [({"q": "FLIGHTS"}, 1), ({"state": "unknown"}, 3), ({"cluster": "apac"}, 3), ({"q": "nothing like it"}, 0)],
)
def test_jobs_are_found_by_name_state_and_cluster(
    operator: Client, now: datetime, query: dict[str, str], expected: int
) -> None:
    scenes.troubled_fleet(now)
    assert operator.get(reverse("fleet"), query).context["fleet"].rows.paginator.count == expected


def test_the_live_part_is_a_fragment(operator: Client, now: datetime) -> None:
    make.make_job(make.make_cluster(now))
    response = operator.get(reverse("fleet"), headers={"HX-Request": "true", "HX-Target": "fleet-live"})
    assert "<html" not in response.content.decode()


def test_two_hundred_jobs_cost_the_queries_of_ten(
    operator: Client, now: datetime, django_assert_max_num_queries: Queries
) -> None:
    cluster = make.make_cluster(now)
    _jobs(cluster, now, 10)
    with django_assert_max_num_queries(32) as few:
        operator.get(reverse("fleet"))
    _jobs(cluster, now, 190)
    with django_assert_max_num_queries(32) as many:
        response = operator.get(reverse("fleet"))
    assert len(many) == len(few)
    assert len(response.context["fleet"].rows.object_list) == 50
    assert len(response.context["fleet"].strip) == 200


def test_figures_are_those_of_the_last_hour(operator: Client, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now, age=timedelta(days=2))
    make.make_checkpoints(run, now - timedelta(hours=2), make.Shape(count=5, base_ms=90_000))
    recent = make.make_checkpoints(run, now, make.Shape(count=20, first_id=50, failed=frozenset({3})))
    figures = operator.get(reverse("fleet")).context["fleet"].rows.object_list[0].figures
    done = sorted(c.end_to_end_duration for c in recent if c.status == "COMPLETED")
    assert done[-2] <= figures.duration_p95 <= done[-1]
    assert len(figures.durations) == 19
    assert figures.failed_per_day == (0, 0, 0, 0, 0, 0, 1)


def _jobs(cluster: Cluster, now: datetime, count: int) -> None:
    start = cluster.jobs.count()
    for n in range(start, start + count):
        job = make.make_job(cluster, f"job-{n:04}")
        run = make.make_run(job, now)
        make.make_checkpoints(run, now, make.Shape(count=3), n)
        make.make_savepoint(run, now)
