"""The pages of one job in all sizes and themes: the console is empty, and axe finds no problem."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from monitoring.models import Checkpoint, Job
from tests.dashboard import sample_fleet
from tests.dashboard.browser.appearance import check_pages
from tests.dashboard.browser.conftest import Reader

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.long, pytest.mark.django_db(transaction=True)]


def pages_of(job: Job) -> dict[str, str]:
    failed = Checkpoint.objects.filter(run__job=job, status="FAILED", operators__isnull=False).first()
    done = Checkpoint.objects.filter(run__job=job, status="COMPLETED", operators__isnull=False).first()
    assert failed is not None
    assert done is not None
    return {
        "checkpoint": reverse("checkpoint", args=[done.pk]),
        "checkpoint-failed": reverse("checkpoint", args=[failed.pk]),
        "job": reverse("job", args=[job.pk]),
        "compare": reverse("job-compare", args=[job.pk]) + f"?a={done.checkpoint_id - 1}&b={failed.checkpoint_id}",
        "compare-runs": reverse("job-compare", args=[job.pk]) + "?a=run+1&b=run+2",
        "history": reverse("job-history", args=[job.pk]) + "?took=100+ms",
        "summary": reverse("job-summary", args=[job.pk]) + "?range=all",
        "configuration": reverse("job-configuration", args=[job.pk]),
        "state": reverse("job-state", args=[job.pk]) + f"?snapshot={done.pk}",
        "exceptions": reverse("job-exceptions", args=[job.pk]),
    }


def settle(page: Page, name: str) -> None:
    """Wait until the page is rendered, and open its details."""
    if page.locator("[data-chart]").count():
        expect(page.locator(".chart .loading:visible")).to_have_count(0, timeout=60_000)
    if name == "checkpoint":
        page.locator(".expander:visible").nth(1).click()
        page.locator(".detail-row").get_by_role("button", name="Async").click()
        page.wait_for_selector(".detail-row th[aria-sort=descending]")
    if name == "state":
        page.get_by_text("Size by partition").first.click()
    if name == "job":
        page.get_by_text("Show as table").first.click()
        page.wait_for_selector(".chart-table table")
        page.get_by_role("heading", name="State by operator").click()
        page.wait_for_selector("#operators table")
    if name == "history" and page.locator(".expander:visible").count():
        page.locator(".expander:visible").nth(1).click()
        page.locator(".detail-row:visible .expander").nth(1).click()
        page.wait_for_selector(".detail-row .detail-row .sort")


def test_pages_of_a_job(read_as: Callable[..., Reader], now: datetime) -> None:
    job = sample_fleet.make_troubled_fleet(now)[0]
    sample_fleet.make_state_reads(job, now)
    pages = pages_of(job)
    check_pages(read_as(), pages, settle=settle)
