"""Actions on a job's pages: zoom, sort by keyboard, show a chart as a table, change the language."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from monitoring.models import Checkpoint
from tests.dashboard import builders as make
from tests.dashboard import sample_fleet
from tests.dashboard.browser.conftest import Reader

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_job_charts_zoom_and_show_tables_in_chinese(read_as: Callable[..., Reader], now: datetime) -> None:
    job = sample_fleet.make_busy_job(now, make.make_cluster(now))
    reader = read_as()
    page = reader.open(reverse("job", args=[job.pk]))
    expect(page.locator(".chart .loading")).to_have_count(0, timeout=60_000)
    page.locator(".chart .nsewdrag").nth(1).hover(position={"x": 5, "y": 5})
    drawing = page.locator(".chart .nsewdrag").first.bounding_box()
    assert drawing is not None
    page.mouse.move(drawing["x"] + drawing["width"] * 0.9, drawing["y"] + drawing["height"] * 0.9)
    expect(page.locator(".hoverlayer .hovertext").first).to_be_visible()
    page.mouse.click(drawing["x"] + drawing["width"] * 0.9, drawing["y"] + drawing["height"] * 0.9)
    page.wait_for_url("**/checkpoints/*/")
    page.go_back()
    expect(page.locator(".chart .loading")).to_have_count(0, timeout=60_000)
    middle = drawing["y"] + drawing["height"] / 2
    page.mouse.move(drawing["x"] + drawing["width"] * 0.5, middle)
    page.mouse.down()
    page.mouse.move(drawing["x"] + drawing["width"] * 0.75, middle, steps=6)
    with page.expect_navigation():
        page.mouse.up()
    asked = {name: datetime.fromisoformat(texts[0]) for name, texts in parse_qs(urlsplit(page.url).query).items()}
    assert asked["since"].utcoffset() == asked["until"].utcoffset() == timedelta()
    assert 500 < (asked["until"] - asked["since"]).total_seconds() < 1200
    expect(page.locator(".chart .loading")).to_have_count(0, timeout=60_000)
    reader.picture("job-zoomed")

    table = page.locator("#table-durations")
    table.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(table.get_by_role("columnheader", name="Start delay")).to_be_visible()

    done = Checkpoint.objects.filter(run__job=job, status="COMPLETED", operators__isnull=False).first()
    assert done is not None
    page = reader.open(reverse("checkpoint", args=[done.pk]))
    sort = page.get_by_role("button", name="Full size")
    sort.focus()
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Full size")
    expect(page.get_by_role("button", name="Full size")).to_be_focused()

    page.locator(".top .menu summary").click()
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("heading", name="各子任务耗时")).to_be_visible()
    expect(page.locator("#live")).to_have_text("实时")
    reader.picture("checkpoint-chinese")
    page = reader.open(reverse("job-history", args=[job.pk]))
    reader.picture("history-chinese")
    assert reader.barriers() == []
    assert reader.complaints == []


def test_refresh_on_a_phone_keeps_the_open_tab_and_the_focus(read_as: Callable[..., Reader], now: datetime) -> None:
    job = sample_fleet.make_busy_job(now, make.make_cluster(now))
    reader = read_as("narrow")
    page = reader.open(reverse("job-exceptions", args=[job.pk]))
    tabs = page.get_by_role("navigation", name="Job pages")
    expect(tabs.get_by_role("link", name="Exceptions")).to_be_in_viewport()

    tabs.get_by_role("link", name="State").focus()
    tabs.evaluate("tabs => tabs.dataset.shown = 'before'")
    page.evaluate("document.body.dispatchEvent(new CustomEvent('tick'))")
    expect(page.locator(".tabs[data-shown]")).to_have_count(0)
    expect(tabs.get_by_role("link", name="State")).to_be_focused()
    expect(tabs.get_by_role("link", name="Exceptions")).to_be_in_viewport()
    assert reader.complaints == []
