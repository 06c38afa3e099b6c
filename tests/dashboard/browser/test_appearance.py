"""Every page in all sizes and themes: the console is empty, and the page is accessible."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from django.urls import reverse

from monitoring.models import Checkpoint, Job
from tests.dashboard import sample_fleet
from tests.dashboard.browser.appearance import check_pages
from tests.dashboard.browser.conftest import Reader

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.long, pytest.mark.django_db(transaction=True)]


def older(job: Job) -> Checkpoint:
    """Return a completed checkpoint with newer ones after it."""
    assert job.current_run is not None
    return job.current_run.checkpoints.filter(status="COMPLETED", discarded=False)[0]


def test_pages_of_a_troubled_fleet(
    read_as: Callable[..., Reader], signs_of_life: None, now: datetime, state_root: Path
) -> None:
    jobs = sample_fleet.make_troubled_fleet(now)
    unseen = sample_fleet.make_job_with_unlisted_checkpoint(now, jobs[0].cluster, state_root)
    sample_fleet.ticks(now)
    job, dead = jobs[0], jobs[1]
    pages = {
        "fleet": reverse("fleet"),
        "savepoints": reverse("job-savepoints", args=[job.pk]),
        "savepoint": reverse("savepoint", args=[job.savepoints.get(pinned=True).pk]),
        "retention": reverse("job-retention", args=[job.pk]),
        "launch": reverse("job-launch", args=[job.pk]),
        "alerts": reverse("job-alerts", args=[job.pk]),
        "rules": reverse("rules"),
        "rule": reverse("rule", args=[job.rules.get().pk]),
        "rule-kinds": reverse("rule-kinds"),
        "as-code": reverse("as-code"),
        "rule-new": reverse("rule-new", args=["end_to_end_duration"]),
        "restarts": reverse("job-restarts", args=[job.pk]),
        "restart": reverse("job-restart", args=[job.pk]),
        "restart-older": reverse("job-restart", args=[job.pk]) + f"?from=checkpoint-{older(job).pk}",
        "restart-found": reverse("job-restart", args=[unseen.pk]),
        "stop": reverse("job-stop", args=[job.pk]),
        "cancel": reverse("job-cancel", args=[job.pk]),
        "progress": reverse("restart-progress", args=[dead.restart_attempts.get().pk]),
        "incidents": reverse("incidents"),
        "incident": reverse("incident", args=[job.incidents.get().pk]),
        "all-savepoints": reverse("savepoints"),
        "automation": reverse("automation"),
        "clusters": reverse("clusters"),
        "cluster": reverse("cluster", args=[job.cluster_id]),
        "mails": reverse("mails"),
        "audit": reverse("audit"),
        "health": reverse("system-health"),
    }
    check_pages(read_as(), pages)
