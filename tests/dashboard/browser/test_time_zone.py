"""The pages use the time zone of the browser, and a time range in the URL has its offset."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from tests.dashboard import builders as make
from tests.dashboard.browser.conftest import Reader

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_first_page_is_in_the_zone_of_the_browser(read_as: Callable[..., Reader]) -> None:
    reader = read_as("narrow", zone="Asia/Kathmandu")
    page = reader.page
    page.goto(reader.address + reverse("fleet"), wait_until="commit")  # the page loads itself once more
    expect(page.locator(".top .zone")).to_have_text("Time zone UTC+5:45")
    assert reader.overflow() == 0
    page.locator(".top .zone").click()
    expect(page.get_by_role("heading", name="Your account", level=1)).to_be_visible()
    assert reader.complaints == []


# On 2026-10-25, the clocks of Berlin are set back from 03:00 to 02:00.
@pytest.mark.parametrize(
    ("since", "until", "offsets"),
    [
        ("2026-10-24T02:30", "2026-10-26T02:30", ("+02:00", "+01:00")),
        ("2026-10-25T02:30", "2026-10-25T02:45", ("+02:00", "+01:00")),
        ("2026-10-25T01:59", "2026-10-25T03:00", ("+02:00", "+01:00")),
        ("2026-11-01T00:00", "2026-11-02T00:00", ("+01:00", "+01:00")),
    ],
)
def test_range_of_a_form_has_its_offset(
    read_as: Callable[..., Reader], now: datetime, since: str, until: str, offsets: tuple[str, str]
) -> None:
    job = make.make_job(make.make_cluster(now))
    make.make_run(job, now)
    reader = read_as(zone="Europe/Berlin")
    page = reader.page
    page.goto(reader.address + reverse("job-history", args=[job.pk]), wait_until="commit")
    expect(page.locator("html")).to_have_attribute("data-zone", "Europe/Berlin")
    page.wait_for_load_state()  # the form adds the offset then
    page.locator("#id_since").fill(since)
    page.locator("#id_until").fill(until)
    page.get_by_role("button", name="Apply").click()
    page.wait_for_url("**since=*")
    asked = parse_qs(urlsplit(page.url).query)
    assert (asked["since"], asked["until"]) == ([f"{since}:00{offsets[0]}"], [f"{until}:00{offsets[1]}"])
    expect(page.locator("#id_since")).to_have_value(re.compile(f"^{since}(:00)?$"))
