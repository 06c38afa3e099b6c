"""Three uses take at most three clicks from the fleet: find why a checkpoint failed, make a rule, restart a job."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.urls import reverse
from playwright.sync_api import Locator, Page, expect

from monitoring.models import AlertRule, Job, RestartAttempt, RuleScope
from tests.dashboard import builders as make
from tests.dashboard.browser.appearance import mark_as_polled
from tests.dashboard.browser.conftest import Reader

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

MOST = 3


class Clicks:
    """A reader that has only a mouse. Every click is counted."""

    def __init__(self, page: Page) -> None:
        self.page, self.count = page, 0

    def click(self, part: Locator) -> None:
        self.count += 1
        part.click()


@pytest.fixture
def job(now: datetime) -> Job:
    """Return a job with a failed checkpoint and a savepoint, among others."""
    cluster = make.make_cluster(now)
    for n in range(12):
        make.make_run(make.make_job(cluster, f"job-{n:02}"), now)
    job = make.make_job(cluster)
    run = make.make_run(job, now)
    made = make.make_checkpoints(run, now, make.Shape(count=20, failed=frozenset({2})))
    make.make_operators(made[-4:])
    make.make_savepoint(run, now - timedelta(minutes=6))
    mark_as_polled()
    return job


@pytest.fixture
def mouse(read_as: Callable[..., Reader], job: Job) -> Clicks:
    return Clicks(read_as().open(reverse("fleet")))


def menu(mouse: Clicks, job: Job) -> Locator:
    """Open the menu of the job's row."""
    mouse.click(mouse.page.get_by_label(f"Actions for {job.name}"))
    return mouse.page.locator(f"#menu-{job.pk} .menu-items")


def test_reason_of_a_failed_checkpoint_is_found(mouse: Clicks, job: Job) -> None:
    row = mouse.page.locator("tr", has=mouse.page.locator(f"#job-{job.pk}"))
    mouse.click(row.get_by_title("Newest failed checkpoint"))
    expect(mouse.page).to_have_title(re.compile("Checkpoint 18 of"))
    expect(mouse.page.locator("main")).to_contain_text("expired before")
    assert mouse.count == 1


def test_reason_of_a_failed_checkpoint_is_found_with_the_menu(mouse: Clicks, job: Job) -> None:
    mouse.click(menu(mouse, job).get_by_role("link", name="Newest failed checkpoint"))
    expect(mouse.page.locator("main")).to_contain_text("expired before")
    assert mouse.count <= MOST


def test_rule_for_a_job_is_made(mouse: Clicks, job: Job) -> None:
    mouse.click(menu(mouse, job).get_by_role("link", name="New alert rule"))
    mouse.click(mouse.page.get_by_role("button", name="Save rule"))
    expect(mouse.page.get_by_role("status").filter(has_text="Rule saved.")).to_be_visible()
    rule = AlertRule.objects.get()
    assert (rule.job, rule.kind, rule.scope) == (job, "failed_in_window", RuleScope.JOB)
    assert mouse.count <= MOST


def test_job_is_restarted_from_a_savepoint(mouse: Clicks, job: Job) -> None:
    mouse.click(menu(mouse, job).get_by_role("link", name="Restart from the newest savepoint"))
    mouse.click(mouse.page.get_by_role("button", name="Restart from savepoint"))
    expect(mouse.page.get_by_text("This page updates until the job is running again")).to_be_visible()
    assert RestartAttempt.objects.get().savepoint == job.savepoints.get()
    assert mouse.count <= MOST


def test_job_is_stopped_with_a_savepoint_and_restarted(mouse: Clicks, job: Job) -> None:
    mouse.click(menu(mouse, job).get_by_role("link", name="Restart from…"))
    mouse.click(mouse.page.get_by_role("button", name="Stop with a savepoint and restart"))
    mouse.page.wait_for_url("**/restarts/*/")
    assert RestartAttempt.objects.get().from_stop
    assert mouse.count <= MOST


@pytest.mark.nightly
@pytest.mark.parametrize("size", ["wide", "middle", "narrow"])
def test_menu_of_each_row_is_on_the_screen(read_as: Callable[..., Reader], job: Job, size: str) -> None:
    reader = read_as(size)
    page = reader.open(reverse("fleet"))
    for button in page.locator(".row-menu summary").all():
        page.keyboard.press("Escape")  # an open menu covers the next button
        button.click()
        for link in page.locator(".row-menu [open] a").all():
            expect(link).to_be_in_viewport(ratio=1)
    reader.picture(f"fleet-menu-{size}", whole=False)
    reader.refresh("fleet-live")
    expect(page.locator(".row-menu [open]")).to_have_count(1)
    assert reader.barriers() == []
    assert reader.complaints == []
