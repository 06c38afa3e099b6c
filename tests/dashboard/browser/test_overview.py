"""The overview of a job in the browser: it does not move while it is live, and folded parts stay as they were left."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from monitoring.models import (
    Checkpoint,
    ConfigurationChange,
    Incident,
    IncidentState,
    Job,
    Run,
    Savepoint,
    SavepointState,
)
from tests.dashboard import builders as make
from tests.dashboard import sample_fleet
from tests.dashboard.browser.appearance import mark_as_polled
from tests.dashboard.browser.conftest import Reader

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.django_db(transaction=True)]

MOST_SHIFT = 0.05
WATCH = """
window.shifts = [];
const note = (shift) => shift.hadRecentInput || window.shifts.push(shift.value);
new PerformanceObserver((list) => list.getEntries().forEach(note)).observe({ type: "layout-shift", buffered: true });
"""


def drawn(page: Page) -> None:
    expect(page.locator(".chart .main-svg").first).to_be_visible()
    expect(page.locator(".loading:visible")).to_have_count(0)


def refresh(page: Page) -> None:
    """Refresh the heading and the live parts, and wait until they are replaced."""
    marked = "part => part.dataset.shown = 'before'"
    page.locator("#job-header .page-head").evaluate(marked)
    page.locator("#overview-live .tiles").evaluate(marked)
    page.evaluate("document.body.dispatchEvent(new CustomEvent('tick'))")
    expect(page.locator(":is(#job-header, #overview-live) [data-shown]")).to_have_count(0)


@pytest.mark.parametrize("size", ["wide", "narrow"])
@pytest.mark.parametrize("scrolled", [0, 700])
def test_live_refreshes_do_not_move_the_page(
    read_as: Callable[..., Reader], now: datetime, size: str, scrolled: int
) -> None:
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now)
    make.make_operators(make.make_checkpoints(run, now, make.Shape(count=60, failed=frozenset({9}))))
    mark_as_polled()
    reader = read_as(size)
    reader.page.add_init_script(WATCH)
    page = reader.open(reverse("job", args=[job.pk]))
    drawn(page)
    page.evaluate(f"window.scrollTo(0, {scrolled})")
    top = _top_of_figure(page)
    for change in (_savepoint_begins, _incident_opens, _checkpoint_fails, _savepoint_ends, _incident_ends):
        change(job, run, now)
        mark_as_polled()
        refresh(page)
        if size == "wide":
            assert _top_of_figure(page) == top
    assert page.evaluate("window.shifts.reduce((sum, each) => sum + each, 0)") <= MOST_SHIFT
    assert reader.complaints == []


def _top_of_figure(page: Page) -> Any:
    return page.evaluate("document.querySelector('.lanes').getBoundingClientRect().top + window.scrollY")


def _savepoint_begins(job: Job, run: Run, now: datetime) -> None:
    make.make_savepoint(run, now, state=SavepointState.IN_PROGRESS, completed_at=None, requested_by="olga")


def _incident_opens(job: Job, run: Run, now: datetime) -> None:
    make.make_incident(make.make_rule(job), now)


def _checkpoint_fails(job: Job, run: Run, now: datetime) -> None:
    later = now + timedelta(seconds=10)
    make.make_operators(make.make_checkpoints(run, later, make.Shape(count=1, first_id=61, failed=frozenset({0}))))


def _savepoint_ends(job: Job, run: Run, now: datetime) -> None:
    Savepoint.objects.update(state=SavepointState.COMPLETED, completed_at=now)


def _incident_ends(job: Job, run: Run, now: datetime) -> None:
    Incident.objects.update(state=IncidentState.RESOLVED, resolved_at=now)
    Checkpoint.objects.filter(run=run, checkpoint_id=61).delete()


def test_open_and_folded_parts_are_remembered_for_other_jobs(read_as: Callable[..., Reader], now: datetime) -> None:
    cluster = make.make_cluster(now)
    first, second = (sample_fleet.make_healthy_job(now, cluster, name) for name in ("one", "two"))
    reader = read_as()
    loaded: list[str] = []
    reader.page.on("request", lambda request: loaded.append(request.url))
    page = reader.open(reverse("job", args=[first.pk]))
    drawn(page)
    assert [url for url in loaded if "/charts/" in url and "lanes" not in url] == []
    part = page.locator("#chart-delays")
    part.locator("summary").first.focus()
    page.keyboard.press("Enter")
    expect(part.locator(".main-svg").first).to_be_visible()
    page.locator("#newest > summary").click()
    expect(page.locator("#newest-live")).to_be_visible()
    refresh(page)
    expect(page.locator("#newest-live")).to_be_visible()
    page = reader.open(reverse("job", args=[second.pk]))
    expect(part.locator(".main-svg").first).to_be_visible()
    expect(page.locator("#newest-live")).to_be_visible()
    expect(page.locator("#chart-moved .chart")).to_be_hidden()
    page.locator("#newest > summary").click()
    expect(page.locator("#newest-live")).to_be_hidden()
    page.reload()
    expect(part.locator(".main-svg").first).to_be_visible()
    expect(page.locator("#newest-live")).to_be_hidden()
    assert reader.complaints == []


def test_lanes_have_one_time_axis(read_as: Callable[..., Reader], now: datetime) -> None:
    """The drawings of all lanes have the same left and right edge, and the pointer finds one checkpoint in each."""
    job = sample_fleet.make_busy_job(now, make.make_cluster(now))
    reader = read_as()
    for size in ("wide", "middle", "narrow"):
        reader.turn(size, "light")
        page = reader.open(reverse("job", args=[job.pk]))
        drawn(page)
        areas = page.locator(".lanes .nsewdrag").evaluate_all(
            "areas => areas.map((area) => area.getBoundingClientRect()).map(({ left, right }) => [left, right])"
        )
        assert len(areas) == 5
        assert len({tuple(round(edge) for edge in area) for area in areas}) == 1
        for lane in (0, 3):  # durations and full size
            page.locator(".lanes .nsewdrag").nth(lane).hover(position={"x": 200, "y": 8})
            expect(page.locator(".hoverlayer .hovertext")).to_have_count(1)
        reader.picture(f"overview-lanes-{size}")
    assert reader.complaints == []


def test_flag_of_a_change_opens_the_comparison(read_as: Callable[..., Reader], now: datetime) -> None:
    job = sample_fleet.make_busy_job(now, make.make_cluster(now))
    values = {"part": "checkpointing", "key": "mode", "kind": "changed", "before": "a", "after": "b"}
    ConfigurationChange.objects.create(job=job, at=now - timedelta(minutes=30), **values)
    reader = read_as()
    page = reader.open(reverse("job", args=[job.pk]))
    drawn(page)
    flag = page.locator(".lanes .annotation", has_text="▼").first
    flag.hover()
    expect(page.locator(".hoverlayer .hovertext")).to_have_count(1)
    expect(page.locator(".hoverlayer .hovertext")).to_contain_text("mode: a → b")
    reader.picture("overview-flag", whole=False)
    flag.click()
    page.wait_for_url("**/compare/?a=*")
    expect(page.get_by_role("heading", name="Changes in these time ranges")).to_be_visible()
    assert reader.complaints == []
