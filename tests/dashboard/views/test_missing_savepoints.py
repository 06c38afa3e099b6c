"""A savepoint that was deleted outside Waymark is marked and not offered. One that cannot be checked is marked too."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from dashboard.queries.overview import newest_savepoint
from monitoring.models import Cluster, Job, RestartAttempt, Savepoint
from tests.dashboard import builders as make
from tests.monitoring.fake_job_manager import FakeJobManager, running_job_manager
from tests.monitoring.savepoints.snapshots import lay_down

pytestmark = pytest.mark.django_db


@pytest.fixture
def job_manager() -> Iterator[FakeJobManager]:
    with running_job_manager() as manager:
        yield manager


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now)
    for hours in (2, 1):
        make.make_savepoint(run, now - timedelta(hours=hours), path=f"file:/data/savepoint-{hours}")
    return job


@pytest.fixture
def gone(job: Job, now: datetime) -> Savepoint:
    """Mark the newer savepoint as deleted."""
    savepoint = job.savepoints.get(path="file:/data/savepoint-1")
    savepoint.gone_at, savepoint.checked_at, savepoint.problem = now, now, "there is no _metadata"
    savepoint.save()
    return savepoint


def page(client: Client, name: str, *args: object, **query: str) -> str:
    return " ".join(client.get(reverse(name, args=args), query).content.decode().split())


def test_missing_savepoint_is_marked_and_not_offered(operator: Client, job: Job, gone: Savepoint) -> None:
    newest = newest_savepoint(job)
    assert newest is not None
    assert newest.path == "file:/data/savepoint-2"
    for listed in (page(operator, "job-savepoints", job.pk), page(operator, "savepoints")):
        assert listed.count('<span class="badge badge-bad">missing</span>') == 1
    assert f"?from=savepoint-{gone.pk}" not in page(operator, "job-savepoints", job.pk)
    assert f"?from=savepoint-{gone.pk}" not in page(operator, "job-restart", job.pk)
    assert f"savepoint-{gone.pk}" not in page(operator, "job-launch", job.pk)
    own = page(operator, "savepoint", gone.pk)
    assert "<b>The files were deleted outside Waymark.</b>" in own
    assert "Restart from this savepoint" not in own
    assert "Delete files" in own


def test_a_restart_from_a_missing_savepoint_is_refused_with_the_reason(
    operator: Client, job: Job, gone: Savepoint
) -> None:
    sent = {"from": f"savepoint-{gone.pk}"}
    answer = operator.post(reverse("job-restart", args=[job.pk]), sent, follow=True).content.decode()
    assert "the files of this savepoint were deleted" in answer
    assert not RestartAttempt.objects.exists()


@pytest.mark.parametrize(
    ("engine", "roots", "checked"),
    [("spark", (), True), ("flink", (), False), ("flink", ("/elsewhere",), False), ("flink", ("/data",), True)],
)
def test_unverifiable_savepoint_is_marked(  # type: ignore[no-untyped-def]
    operator: Client, job: Job, settings, engine: str, roots: tuple[str, ...], checked: bool
) -> None:
    settings.STATE_ROOTS = roots
    Cluster.objects.update(engine=engine)
    savepoint = job.savepoints.get(path="file:/data/savepoint-1")
    asked = page(operator, "job-restart", job.pk, **{"from": f"savepoint-{savepoint.pk}"})
    assert ("<b>Check:</b>" in asked, "<b>No check:</b>" in asked) == (checked, not checked)
    assert ("WAYMARK_STATE_ROOTS" in asked) is not checked
    assert page(operator, "job-savepoints", job.pk).count(">not verified<") == (0 if checked else 2)
    own = page(operator, "savepoint", savepoint.pk)
    assert ("not verified: this cluster cannot check the savepoint" in own) is not checked


def test_files_are_checked_on_request(
    operator: Client, viewer: Client, job: Job, job_manager: FakeJobManager, state_root: Path
) -> None:
    job_manager.can_validate = False  # Flink cannot validate, either
    Cluster.objects.update(engine="flink", rest_url=job_manager.url)
    directory = lay_down("2.3.0-hashmap-20kb-savepoint-canonical", state_root / "savepoint-looked-at")
    lay_down("2.3.0-hashmap-20kb-savepoint-canonical", state_root / "savepoint-beside")
    savepoint = job.savepoints.get(path="file:/data/savepoint-1")
    Savepoint.objects.filter(pk=savepoint.pk).update(path=f"file:{directory}")
    address = reverse("savepoint-check", args=[savepoint.pk])

    assert viewer.post(address).status_code == 403
    assert "The savepoint is complete: all files exist." in operator.post(address, follow=True).content.decode()
    shutil.rmtree(directory)
    answer = operator.post(address, follow=True).content.decode()
    assert "<b>The files were deleted outside Waymark.</b>" in answer
    savepoint.refresh_from_db()
    assert savepoint.gone_at is not None
