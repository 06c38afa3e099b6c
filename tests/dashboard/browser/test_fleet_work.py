"""Users select several jobs, and find one by its name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from monitoring.models import Savepoint
from tests.dashboard import builders, sample_fleet
from tests.dashboard.browser.appearance import mark_as_polled
from tests.dashboard.browser.conftest import Reader

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_jobs_are_selected_and_searched(read_as: Callable[..., Reader], signs_of_life: None, now: datetime) -> None:
    jobs = sample_fleet.make_troubled_fleet(now)
    mark_as_polled()
    reader = read_as()
    page = reader.open(reverse("fleet"))
    bulk = page.get_by_role("form", name="With selected")
    expect(bulk).to_be_hidden()

    page.get_by_label(f"Select {jobs[0].name}").check()
    expect(bulk).to_be_visible()
    reader.refresh("fleet-live")
    expect(page.get_by_label(f"Select {jobs[0].name}")).to_be_checked()  # also after the table was refreshed
    page.get_by_role("button", name="Savepoint now").click()
    expect(page.get_by_role("heading", name="Savepoint now: 1 of 1")).to_be_visible()
    page.wait_for_load_state()  # the palette listens then
    assert Savepoint.objects.filter(job=jobs[0], requested_by="olga", state="requested").exists()

    page.keyboard.press("Control+k")
    page.keyboard.type("cha")
    expect(page.get_by_role("option", name="Channels page")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page).to_have_url(reader.address + reverse("channels"))
    page.keyboard.press("Control+k")
    page.keyboard.press("Escape")
    expect(page.get_by_role("combobox")).to_be_hidden()
    assert reader.complaints == []


def test_next_page_loads_on_scroll(read_as: Callable[..., Reader], signs_of_life: None, now: datetime) -> None:
    cluster = builders.make_cluster(now)
    for n in range(170):
        builders.make_run(builders.make_job(cluster, f"job-{n:03}"), now)
    reader = read_as()
    page = reader.open(reverse("fleet"))
    rows = page.locator("#fleet-live tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_label("Select all jobs shown").check()

    page.get_by_role("link", name="Next 50").scroll_into_view_if_needed()
    expect(rows).to_have_count(100)
    expect(page.get_by_label("Select job-049")).to_be_checked()
    expect(page.get_by_label("Select job-050")).not_to_be_checked()
    expect(page.get_by_label("Select all jobs shown")).not_to_be_checked()
    with page.expect_response(lambda response: "upto=2" in response.url):
        page.evaluate("document.body.dispatchEvent(new CustomEvent('tick-2'))")
    expect(page.locator(".htmx-request, .htmx-swapping, .htmx-settling")).to_have_count(0)
    expect(rows).to_have_count(100)  # a refresh keeps the appended page

    page.evaluate("document.getElementById('more').focus({preventScroll: true})")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(150)
    expect(page.locator("#fleet-live tbody tr").nth(100).get_by_role("link").first).to_be_focused()

    page.get_by_role("link", name="Next 50").scroll_into_view_if_needed()
    expect(rows).to_have_count(170)
    page.get_by_label("Select all 170").check()
    page.get_by_role("button", name="Stop with a savepoint…").click()
    expect(page.get_by_role("heading", name="Stop 170 jobs, each with a savepoint?")).to_be_visible()
    assert reader.complaints == []


def test_a_row_of_the_fleet_has_one_line(read_as: Callable[..., Reader], signs_of_life: None, now: datetime) -> None:
    """Rows with long names, labels and problems too. On a phone, a row is a card of a third of the screen at most."""
    jobs = sample_fleet.make_troubled_fleet(now)
    for job in jobs[:4]:
        job.labels = {"team": "payments", "env": "production", "owner": "somebody-with-a-long-name"}
        job.save(update_fields=["labels"])
    mark_as_polled()
    reader = read_as()
    page = reader.open(reverse("fleet"))
    height_of_rows = "rows => rows.map(row => row.getBoundingClientRect().height)"
    for width in (1440, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        heights = page.eval_on_selector_all("table.fleet tbody tr", height_of_rows)
        assert len(heights) == len(jobs)
        assert max(heights) <= 44
        assert reader.cut() == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert max(page.eval_on_selector_all("table.fleet tbody tr", height_of_rows)) <= 280
    assert reader.overflow() <= 0
    assert reader.complaints == []


def test_the_wall_board_is_readable_from_3_m(
    read_as: Callable[..., Reader], signs_of_life: None, now: datetime
) -> None:
    jobs = sample_fleet.make_troubled_fleet(now)
    mark_as_polled()
    reader = read_as()
    reader.page.set_viewport_size({"width": 1920, "height": 1080})
    page = reader.open(reverse("fleet") + "?kiosk=1")
    size = "part => parseFloat(getComputedStyle(part).fontSize)"
    assert page.locator(".kiosk-level b").first.evaluate(size) >= 100
    assert page.locator(".kiosk-jobs a").first.evaluate(size) >= 36
    assert page.locator(".kiosk-level span").first.evaluate(size) >= 36
    assert reader.barriers() == []
    builders.make_run(builders.make_job(jobs[0].cluster, "new-job"), now, state="FAILED")
    expect(page.get_by_role("link", name="new-job", exact=True)).to_be_visible(timeout=60_000)
    page.set_viewport_size({"width": 390, "height": 844})
    assert reader.overflow() <= 0
    assert reader.complaints == []
