"""The overview of a job: tiles, one figure, the latest checkpoints, and folded parts."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import AttemptState, Job, Run, RunState, SavepointState
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
_LINE = re.compile(r'<div class="note (note-[a-z]+) one-height">(.*?)</div>', re.DOTALL)


@pytest.fixture
def run(now: datetime) -> Run:
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now)
    make.make_operators(make.make_checkpoints(run, now - timedelta(seconds=2), make.Shape(count=30)))
    return run


def overview(client: Client, job: Job, **query: str) -> str:
    return client.get(reverse("job", args=[job.pk]), query).content.decode()


def status_line(client: Client, job: Job) -> tuple[str, str]:
    """Return the class and the text of the line below the heading."""
    header = client.get(reverse("job-header", args=[job.pk])).content.decode()
    ((tone, inner),) = _LINE.findall(header)
    return tone, " ".join(re.sub(r"<[^>]+>", " ", inner).split())


def test_tiles_come_first_then_the_figure_the_latest_checkpoints_and_the_rest(viewer: Client, run: Run) -> None:
    page = overview(viewer, run.job)
    parts = ('class="tiles"', "charts/lanes.json", "Latest checkpoints", 'id="newest"', 'id="diagnosis-live"')
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


def test_only_the_figure_is_not_folded(viewer: Client, run: Run) -> None:
    page = overview(viewer, run.job)
    open_part, *folded = page.split('<details class="card folded"')
    charts = re.compile(r"charts/([a-z]+)\.json")
    assert charts.findall(open_part) == ["lanes"]
    assert [charts.findall(part) for part in folded] == [[], [], [], ["alignments"], ["delays"], ["moved"]]
    assert all("data-remember" in part[:60] for part in folded)


def test_every_lane_has_its_figures_as_a_table(viewer: Client, run: Run) -> None:
    page = overview(viewer, run.job, range="6h")
    for name in ("durations", "alignment", "sizes"):
        address = reverse("job-chart-table", args=[run.job_id, name])
        assert f'hx-get="{address}?range=6h"' in page
        assert viewer.get(address, {"range": "6h"}).status_code == 200


def test_a_refresh_has_every_live_part_and_no_chart(viewer: Client, run: Run) -> None:
    answer = viewer.get(reverse("job", args=[run.job_id]), headers={"HX-Request": "true", "HX-Target": "overview-live"})
    part, page = answer.content.decode(), overview(viewer, run.job)
    replaced = re.findall(r'<div id="([a-z-]+)" hx-swap-oob="innerHTML">', part)
    assert replaced == ["cause-live", "latest-live", "position-live", "found-live", "newest-live", "diagnosis-live"]
    assert all(f'id="{each}"' in page for each in replaced)
    assert 'class="tiles"' in part
    assert "data-chart" not in part


def test_job_without_checkpoints_has_no_room_for_lanes(viewer: Client, run: Run) -> None:
    assert "lanes-low" not in overview(viewer, run.job)
    run.checkpoints.all().delete()
    assert "lanes-low" in overview(viewer, run.job)


def test_status_line_of_a_healthy_job(viewer: Client, run: Run) -> None:
    assert status_line(viewer, run.job) == ("note-calm", "Healthy. No unresolved incident, and no late checkpoint.")


def test_status_line_has_a_savepoint_in_progress(viewer: Client, run: Run, now: datetime) -> None:
    make.make_savepoint(run, now, state=SavepointState.IN_PROGRESS, completed_at=None, requested_by="olga")
    tone, text = status_line(viewer, run.job)
    assert tone == "note-busy"
    assert text.startswith("A savepoint is in progress.")
    assert text.endswith("by olga.")


def test_status_line_has_the_problem_before_the_savepoint(viewer: Client, run: Run, now: datetime) -> None:
    make.make_savepoint(run, now, state=SavepointState.IN_PROGRESS, completed_at=None)
    make.make_incident(make.make_rule(run.job), now)
    tone, text = status_line(viewer, run.job)
    assert tone in ("note-warn", "note-bad")
    assert "1 unresolved incident" in text
    assert text.endswith("Savepoint in progress")


def test_status_line_has_a_restart(viewer: Client, run: Run, now: datetime) -> None:
    make.make_attempt(run.job, now, AttemptState.VALIDATING)
    tone, text = status_line(viewer, run.job)
    assert tone == "note-busy"
    assert text.startswith("Restart ")
    assert text.endswith("Show progress")


def test_ended_job_shows_its_end_instead_of_a_status_line(viewer: Client, run: Run, now: datetime) -> None:
    Run.objects.update(state=RunState.CANCELED, ended_at=now)
    header = viewer.get(reverse("job-header", args=[run.job_id])).content.decode()
    assert "one-height" not in header
    assert "Waymark does not restart a job that was stopped or that finished." in header
