"""The pages of a job with a continuous trigger, for which Spark reports no alignment, sync durations or rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from monitoring.models import Checkpoint, Engine, Job, OperatorCheckpoint
from tests.dashboard import builders as make
from tests.dashboard.browser.appearance import check_pages
from tests.dashboard.browser.conftest import Reader

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.long, pytest.mark.django_db(transaction=True)]


def continuous(now: datetime) -> tuple[Job, Checkpoint]:
    """Return a job with checkpoints as the poller stores them: values that Spark does not report are None."""
    job = make.make_job(make.make_cluster(now, engine=Engine.SPARK), "continuous")
    run = make.make_run(job, now)
    checkpoints = make.make_checkpoints(run, now, make.Shape(count=40, failed=(7,)))
    make.make_operators(checkpoints)
    Checkpoint.objects.update(alignment_max=None, sync_max=None)
    OperatorCheckpoint.objects.filter(position=1).delete()  # no stateful operator
    for operator in OperatorCheckpoint.objects.all():
        nothing = [None] * operator.num_subtasks
        OperatorCheckpoint.objects.filter(pk=operator.pk).update(subtask_alignment=nothing, subtask_sync=nothing)
    return job, Checkpoint.objects.order_by("-checkpoint_id")[0]


def settle(page: Page, name: str) -> None:
    if name == "checkpoint":
        page.locator(".expander:visible").first.click()
        expect(page.locator(".detail-row").get_by_text("Minimum")).to_be_visible()
    expect(page.get_by_role("cell", name="0 ms", exact=True)).to_have_count(0)


def test_pages_of_a_continuous_job(read_as: Callable[..., Reader], signs_of_life: None, now: datetime) -> None:
    job, newest = continuous(now)
    failed = Checkpoint.objects.filter(status="FAILED").first()
    assert failed is not None
    pages = {
        "job": reverse("job", args=[job.pk]),
        "history": reverse("job-history", args=[job.pk]),
        "checkpoint": reverse("checkpoint", args=[newest.pk]),
        "failed": reverse("checkpoint", args=[failed.pk]),
        "runs": reverse("job-runs", args=[job.pk]),
        "summary": reverse("job-summary", args=[job.pk]),
        "configuration": reverse("job-configuration", args=[job.pk]),
    }
    check_pages(read_as(), pages, "continuous-", settle=settle)
