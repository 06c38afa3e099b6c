"""Every page as a picture, in the sizes and themes people use; the console is silent and nobody is kept out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from django.urls import reverse

from tests.dashboard import scenes
from tests.dashboard.browser.conftest import Reader
from tests.dashboard.browser.looking import poller_looked

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.django_db(transaction=True)]

VIEWS = [("wide", "light"), ("wide", "dark"), ("middle", "light"), ("narrow", "light"), ("narrow", "dark")]
# The extremes see every page; the views between them those with the most on them.
EVERY_PAGE = {("wide", "light"), ("narrow", "dark")}
FULLEST = {"fleet", "restarts", "incidents"}


@pytest.mark.parametrize(("size", "theme"), VIEWS)
def test_pages_of_a_troubled_fleet(
    read_as: Callable[..., Reader],
    signs_of_life: None,
    now: datetime,
    state_root: Path,
    size: str,
    theme: str,
) -> None:
    jobs = scenes.troubled_fleet(now)
    unseen = scenes.died_unseen(now, jobs[0].cluster, state_root)
    scenes.ticks(now)
    job, dead = jobs[0], jobs[1]
    reader = read_as(size, theme)
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
        "rules-as-code": reverse("rules-as-code"),
        "rule-new": reverse("rule-new", args=["end_to_end_duration"]),
        "restarts": reverse("job-restarts", args=[job.pk]),
        "restart": reverse("job-restart", args=[job.pk]),
        "restart-found": reverse("job-restart", args=[unseen.pk]),
        "stop": reverse("job-stop", args=[job.pk]),
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
    barriers, overflow = {}, {}
    for name, path in pages.items():
        if name not in FULLEST and (size, theme) not in EVERY_PAGE:
            continue
        poller_looked()
        reader.open(path)
        reader.picture(f"{name}-{size}-{theme}")
        if found := reader.barriers():
            barriers[name] = found
        if (wider := reader.overflow()) > 0:
            overflow[name] = wider
    assert reader.complaints == []
    assert barriers == {}
    assert overflow == {}
