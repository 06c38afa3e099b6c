"""A session ends while its pages are open: typed text is not lost, and it is not sent as another user."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import Page, expect

from monitoring.models import MaintenanceWindow
from tests.dashboard import builders as make
from tests.dashboard.browser.conftest import Reader

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def _log_out(page: Page) -> None:
    page.locator(".top .menu summary").click()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def _log_in(page: Page, name: str, password: str) -> None:
    page.get_by_label("User name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#live")).to_be_visible()


def _tick(page: Page) -> None:
    """Trigger the refresh of the live parts. A page whose session is over ignores it.

    The page may refresh itself at the same moment and navigate to the log-in. Then the event goes to the page there.
    """
    page.locator("body").dispatch_event("tick")


def _asked_within(page: Page, seconds: int) -> list[str]:
    """Return the requests of the page within some seconds of its clock. Each is answered before the next refresh."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for _beat in range(seconds // 4):
        page.clock.run_for(4000)
        expect(page.locator(".htmx-request")).to_have_count(0)
    return asked


def _second_tab(reader: Reader) -> Page:
    tab = reader.page.context.new_page()
    tab.goto(reader.address + reverse("fleet"))
    return tab


def test_expired_page_without_input_redirects_to_login(read_as: Callable[..., Reader], now: datetime) -> None:
    make.make_cluster(now)
    reader = read_as()
    page = reader.open(reverse("clusters"))
    visited: list[str] = []
    page.on("request", lambda request: request.is_navigation_request() and visited.append(request.url))
    _log_out(_second_tab(reader))
    _tick(page)
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    to_log_in = f"{reverse('login')}?next={reverse('clusters')}"
    assert visited == [reader.address + path for path in (reverse("clusters"), to_log_in)]
    _log_in(page, "olga", "pw-olga-1")
    expect(page).to_have_url(reader.address + reverse("clusters"))


@pytest.mark.nightly
def test_expired_page_keeps_its_input_until_login(
    read_as: Callable[..., Reader], viewer_user: User, now: datetime
) -> None:
    job = make.make_job(make.make_cluster(now))
    reader = read_as()
    reader.page.clock.install()
    page = reader.open(reverse("maintenance"))
    page.get_by_label("Job", exact=True).fill(job.name)
    page.get_by_label("Reason").fill("the disks are swapped")
    plan = page.get_by_role("button", name="Plan window")
    other = _second_tab(reader)
    _log_out(other)
    _tick(page)
    note = page.get_by_role("alert").filter(has_text="Your session has expired.")
    expect(note).to_be_visible()
    expect(page.locator("#live")).to_have_text("Session expired")
    plan.click()
    expect(note.get_by_role("link")).to_be_focused()
    reader.picture("session-over", whole=False)
    assert 1 <= len(_asked_within(page, seconds=68)) < 10

    _log_in(other, "victor", "pw-victor-1")
    _tick(page)
    plan.click()
    expect(note).to_be_visible()  # the page does not use the session of another user
    _log_out(other)
    _log_in(other, "olga", "pw-olga-1")
    expect(note).to_be_hidden()  # immediately, as a result of the log-in in the other page
    expect(page.get_by_label("Reason")).to_have_value("the disks are swapped")
    plan.click()
    expect(page.get_by_role("cell", name="the disks are swapped")).to_be_visible()
    assert MaintenanceWindow.objects.get().job == job
