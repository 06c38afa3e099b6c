"""Pages of deleted and unverifiable savepoints, and open pages whose run was replaced, in all sizes and themes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from monitoring.models import AuditEntry, Engine, Job, RestartAttempt, Run, RunState
from tests.dashboard import builders as make
from tests.dashboard.browser.appearance import check_pages
from tests.dashboard.browser.conftest import Reader

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.long, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now, "flink", engine=Engine.FLINK))
    run = make.make_run(job, now)
    for hours in (3, 2, 1):
        make.make_savepoint(run, now - timedelta(hours=hours), path=f"file:/data/savepoints/savepoint-ae06e0-{hours}")
    job.savepoints.filter(path__endswith="1").update(
        gone_at=now, checked_at=now, problem="there is no _metadata; it is not a completed checkpoint or savepoint"
    )
    copy = make.make_run(make.make_job(job.cluster, "flights-by-route-copy"), now)
    Run.objects.filter(pk=copy.pk).update(restored_path="file:/data/savepoints/savepoint-ae06e0-2")
    return job


def replaced(job: Job, now: datetime) -> None:
    Run.objects.filter(pk=job.current_run_id).update(state=RunState.FINISHED, ended_at=now)
    make.make_run(job, now, age=timedelta(seconds=20))


def test_pages_of_savepoints(read_as: Callable[..., Reader], signs_of_life: None, job: Job, now: datetime) -> None:
    gone, needed = (job.savepoints.get(path__endswith=f"-{hours}") for hours in (1, 2))
    asked = reverse("job-restart", args=[job.pk])
    pages = {
        "of-job": reverse("job-savepoints", args=[job.pk]),
        "of-all": reverse("savepoints"),
        "gone": reverse("savepoint", args=[gone.pk]),
        "needed": reverse("savepoint", args=[needed.pk]),
        "restart-unchecked": f"{asked}?from=savepoint-{needed.pk}",
        "launch": reverse("job-launch", args=[job.pk]),
        "out-of-date": f"{asked}?from=stop",
    }

    def settle(page: Page, name: str) -> None:
        if name == "out-of-date":
            replaced(job, now)
            expect(page.get_by_text("This page is out of date.")).to_be_visible()

    check_pages(read_as(), pages, "savepoints-", settle=settle)


@pytest.mark.parametrize("name", ["job-restart", "job-stop", "job-cancel"])
def test_age_of_a_run_that_ended_no_longer_changes(
    read_as: Callable[..., Reader], signs_of_life: None, job: Job, now: datetime, name: str
) -> None:
    Run.objects.filter(pk=job.current_run_id).update(started_at=now - timedelta(minutes=2))
    page = read_as().open(reverse(name, args=[job.pk]))
    replaced(job, now)
    expect(page.get_by_text("This page is out of date.")).to_be_visible()
    # The run lived for exactly 2 minutes. Without the end, the age would be some seconds more.
    expect(page.locator("[data-of-run] time[data-age]").first).to_have_text("2 min")


def test_outdated_page_cannot_restart_until_it_is_reloaded(
    read_as: Callable[..., Reader], signs_of_life: None, job: Job, now: datetime
) -> None:
    reader = read_as()
    page = reader.open(reverse("job-restart", args=[job.pk]))
    button = page.get_by_role("button", name="Stop with a savepoint and restart")
    replaced(job, now)
    button.click()
    expect(page.get_by_text("Run 2 replaced run 1")).to_be_visible()
    assert not RestartAttempt.objects.exists()

    page.get_by_role("button", name="Stop with a savepoint and restart").click()
    page.wait_for_url("**/restarts/*/")
    old = RestartAttempt.objects.get().old_run
    assert old is not None
    assert old.number == 2


def test_outdated_page_cannot_cancel_the_next_run(
    read_as: Callable[..., Reader], signs_of_life: None, job: Job, now: datetime
) -> None:
    page = read_as().open(reverse("job-cancel", args=[job.pk]))
    page.get_by_label("Reason").fill("wrong output")
    replaced(job, now)
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.get_by_text("Nothing was canceled. Run 2 replaced run 1")).to_be_visible()
    assert not AuditEntry.objects.filter(action="job.cancel").exists()
