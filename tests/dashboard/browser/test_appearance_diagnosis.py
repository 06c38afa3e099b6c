"""The pages with a long diagnosis in all sizes and themes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.urls import reverse
from playwright.sync_api import Page

from monitoring.models import Checkpoint, Engine, Job, OperatorCheckpoint, RunException
from tests.dashboard import builders as make
from tests.dashboard.browser.appearance import check_pages
from tests.dashboard.browser.conftest import Reader

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.django_db(transaction=True)]
BADLY_SET = {
    "mode": "at_least_once",
    "num_retained": 1,
    "tolerable_failed_checkpoints": 0,
    "state_backend": "HashMapStateBackend",
    "externalization": {"enabled": False},
}


def troubled_job(now: datetime) -> tuple[Job, Checkpoint, Checkpoint]:
    """Return a job with bad settings, a failed newest checkpoint, and before it one that a single subtask slowed."""
    cluster = make.make_cluster(now, "eu-prod", engine=Engine.FLINK)
    job = make.make_job(cluster, "orders-enrich", savepoint_interval_s=None)
    run = make.make_run(job, now, checkpoint_config=make.config() | BADLY_SET)
    rows = make.make_checkpoints(run, now - timedelta(seconds=20), make.Shape(count=40, failed=frozenset({0})))
    make.make_operators(rows)
    slow, failed = rows[-2], rows[-1]
    took = {"end_to_end_duration": 24_800, "async_max": 24_000}
    Checkpoint.objects.filter(pk=slow.pk).update(**took, latest_ack_at=slow.triggered_at + timedelta(seconds=24.8))
    OperatorCheckpoint.objects.filter(checkpoint=slow, position=1).update(
        subtask_async=[610, 24_000, 580, 640], subtask_state_size=[10**8, 4 * 10**9, 10**8, 10**8]
    )
    Checkpoint.objects.filter(pk=failed.pk).update(failure_message="Task local checkpoint failure.")
    run.state_changes.create(at=now - timedelta(hours=1), target="RESTARTING")
    RunException.objects.create(
        run=run,
        at=failed.triggered_at + timedelta(seconds=4),
        name="java.util.concurrent.TimeoutException",
        root_cause="TimeoutException: Async function call has timed out.",
        task="enrich with customer (3/4)",
        host="10.12.0.7:41231",
        stacktrace="java.util.concurrent.TimeoutException\n\tat org.example.Enrich.lookUp(Enrich.java:41)",
        digest="1" * 32,
    )
    return job, slow, failed


def test_pages_with_causes_and_advice(read_as: Callable[..., Reader], now: datetime) -> None:
    job, slow, failed = troubled_job(now)
    incident = make.make_incident(make.make_rule(job), now)
    incident.events.update(evidence={"last_row": failed.pk, "count": 3})
    pages = {
        "job": reverse("job", args=[job.pk]),
        "configuration": reverse("job-configuration", args=[job.pk]),
        "checkpoint-slow": reverse("checkpoint", args=[slow.pk]),
        "checkpoint-failed": reverse("checkpoint", args=[failed.pk]),
        "incident": reverse("incident", args=[incident.pk]),
    }
    check_pages(read_as(), pages, "diagnosis-", settle=_advice_is_read)


def _advice_is_read(page: Page, name: str) -> None:
    if name == "job":
        page.locator("#advice > summary").click()
