"""Before a restart, the pages show which queries write rows a second time."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import Job, Run, RunState
from tests.dashboard import builders as make
from tests.monitoring.recovery.test_rows_written_again import SINKS

pytestmark = pytest.mark.django_db

WARNING = "<b>Written twice:</b> rows of batches after this snapshot, by these queries:"
UNKNOWN = "Sinks that Waymark rolls back contain each row exactly once. Other sinks receive this input again."


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_checkpoints(make.make_run(job, now, vertices=SINKS), now, make.Shape(count=3))
    return job


def page(client: Client, name: str, job: Job, **query: str) -> str:
    return " ".join(client.get(reverse(name, args=[job.pk]), query).content.decode().split())


def older_state(job: Job, now: datetime) -> str:
    assert job.current_run is not None
    return f"savepoint-{make.make_savepoint(job.current_run, now - timedelta(minutes=9)).pk}"


def test_the_restart_page_names_the_queries_and_their_sinks(operator: Client, job: Job, now: datetime) -> None:
    html = page(operator, "job-restart", job, **{"from": older_state(job, now)})
    assert f'{WARNING} <span class="breaks">words to kafka.' in html
    assert UNKNOWN not in html


def test_a_savepoint_that_the_job_is_stopped_with_needs_no_warning(operator: Client, job: Job) -> None:
    assert WARNING not in page(operator, "job-restart", job, **{"from": "stop"})


@pytest.mark.parametrize(("vertices", "expected"), [(SINKS[2:], "No query writes a row twice."), (SINKS[:1], UNKNOWN)])
def test_the_page_explains_if_no_rows_or_unknown_rows_are_written_again(
    operator: Client, job: Job, now: datetime, vertices: list[dict[str, object]], expected: str
) -> None:
    Run.objects.update(vertices=vertices)
    html = page(operator, "job-restart", job, **{"from": older_state(job, now)})
    assert expected in html
    assert WARNING not in html


def test_the_configuration_shows_for_each_sink_if_rows_are_written_again(viewer: Client, job: Job) -> None:
    html = page(viewer, "job-configuration", job)
    assert html.count("After a restore: receives the rows of batches after the restored snapshot a second time") == 1
    assert html.count("After a restore: removes the rows of batches after the restored snapshot") == 1


def test_an_upgrade_from_an_older_snapshot_shows_the_warning(operator: Client, job: Job) -> None:
    assert "these queries write the rows of later batches a second time:" in page(operator, "job-launch", job)


@pytest.mark.parametrize(
    ("vertices", "outcome", "is_one_click"),
    [(SINKS, {}, False), (SINKS[2:], {}, True), (SINKS, {"saved": True, "state": "/sp/end", "savepoint": ""}, True)],
)
def test_a_run_that_writes_rows_again_needs_the_page_with_the_warning(
    operator: Client, job: Job, now: datetime, vertices: object, outcome: object, is_one_click: bool
) -> None:
    state = RunState.FINISHED if outcome else RunState.FAILED
    Run.objects.update(vertices=vertices, outcome=outcome, state=state, ended_at=now)
    html = page(operator, "job", job)
    assert (reverse("job-run-again", args=[job.pk]) in html) is is_one_click
    assert reverse("job-restart", args=[job.pk]) in html
