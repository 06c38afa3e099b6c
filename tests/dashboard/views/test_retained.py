"""Retained checkpoints in the list of savepoints: the check of their files, and a restart from one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from monitoring.models import CheckedState, Checkpoint, Job, Run
from tests.dashboard import builders as make
from tests.monitoring.fake_job_manager import FakeJobManager, running_job_manager
from tests.monitoring.savepoints.snapshots import lay_down

pytestmark = pytest.mark.django_db


@pytest.fixture
def job_manager() -> Iterator[FakeJobManager]:
    with running_job_manager() as manager:
        yield manager


@pytest.fixture
def job(now: datetime, job_manager: FakeJobManager) -> Job:
    cluster = make.make_cluster(now)
    cluster.rest_url = job_manager.url
    cluster.save()
    job = make.make_job(cluster)
    make.make_checkpoints(make.make_run(job, now), now, make.Shape(count=4, savepoints=frozenset({2})))
    return job


@pytest.fixture
def newest(job: Job) -> Checkpoint:
    found = Checkpoint.objects.filter(run__job=job).latest("triggered_at")
    assert not found.is_savepoint
    return found


def test_retained_checkpoints_are_listed_with_the_savepoints(viewer: Client, job: Job, newest: Checkpoint) -> None:
    Checkpoint.objects.filter(run__job=job).earliest("triggered_at").delete()
    response = viewer.get(reverse("job-savepoints", args=[job.pk]))
    listed = [each.checkpoint for each in response.context["retained"]]
    assert [each.is_savepoint for each in listed] == [False, False]
    assert listed[0] == newest
    page = response.content.decode()
    assert "verified when taken" in page
    assert "Check files" not in page  # a viewer may not check files


def test_checkpoints_that_the_engine_deletes_with_the_run_are_not_listed(operator: Client, job: Job) -> None:
    job.runs.update(checkpoint_config={"externalization": {"enabled": False}})
    assert operator.get(reverse("job-savepoints", args=[job.pk])).context["retained"] == []


@pytest.mark.parametrize(
    ("problem", "expected"),
    [("", "is complete: all files exist"), ("_metadata is missing", "is damaged: _metadata is missing")],
)
def test_files_of_a_retained_checkpoint_are_checked_on_request(
    operator: Client, job: Job, newest: Checkpoint, job_manager: FakeJobManager, problem: str, expected: str
) -> None:
    job_manager.invalid_paths = {newest.external_path: problem} if problem else {}
    page = operator.post(reverse("job-check-checkpoint", args=[job.pk, newest.pk]), follow=True).content.decode()
    assert f"Checkpoint {newest.checkpoint_id} {expected}" in page
    look = CheckedState.objects.get(job=job, path=newest.external_path)
    assert look.problem == problem

    choices = operator.get(reverse("job-restart", args=[job.pk])).context["offer"].choices
    assert next(each for each in choices if each.path == newest.external_path).problem == look.problem


def test_the_restart_page_does_not_preselect_a_damaged_checkpoint(
    operator: Client, job: Job, newest: Checkpoint, now: datetime
) -> None:
    Run.objects.filter(job=job).update(state="FAILED", ended_at=now)
    CheckedState.objects.create(job=job, path=newest.external_path, checked_at=now, problem="part-0 is missing")
    chosen = operator.get(reverse("job-restart", args=[job.pk])).context["chosen"]
    assert chosen.path != newest.external_path
    assert not chosen.problem


def test_a_flink_checkpoint_is_checked_in_its_storage(
    operator: Client, job: Job, newest: Checkpoint, job_manager: FakeJobManager, tmp_path: Path, settings: Settings
) -> None:
    job_manager.can_validate = False
    url = reverse("job-check-checkpoint", args=[job.pk, newest.pk])
    page = operator.post(url, follow=True).content.decode()
    assert "was not checked: the cluster cannot check it" in page

    settings.STATE_ROOTS = [str(tmp_path)]
    directory = lay_down("2.3.0-hashmap-20kb-checkpoint", tmp_path / "chk-7")
    Checkpoint.objects.filter(pk=newest.pk).update(external_path=f"file:{directory}")
    assert "is complete" in operator.post(url, follow=True).content.decode()


@pytest.mark.parametrize("status", [400, 403])
def test_a_cluster_without_access_to_the_files_reports_no_damage(
    operator: Client, job: Job, newest: Checkpoint, job_manager: FakeJobManager, status: int
) -> None:
    job_manager.answers["validate"] = (status, "It is outside the savepoint directories.")
    page = operator.post(reverse("job-check-checkpoint", args=[job.pk, newest.pk]), follow=True).content.decode()
    assert "was not checked: the cluster cannot check it" in page
    assert not CheckedState.objects.exists()


def test_without_a_response_of_the_cluster_the_checkpoint_is_not_checked(
    operator: Client, job: Job, newest: Checkpoint
) -> None:
    job.cluster.rest_url = "http://127.0.0.1:9"
    job.cluster.save()
    url = reverse("job-check-checkpoint", args=[job.pk, newest.pk])
    page = operator.post(url, follow=True).content.decode()
    assert f"Checkpoint {newest.checkpoint_id} was not checked" in page
    assert not CheckedState.objects.exists()


def test_only_operators_check_only_retained_checkpoints_of_the_job(
    operator: Client, viewer: Client, job: Job, newest: Checkpoint, now: datetime
) -> None:
    other = make.make_job(make.make_cluster(now, "another"))
    assert viewer.post(reverse("job-check-checkpoint", args=[job.pk, newest.pk])).status_code == 403
    assert operator.get(reverse("job-check-checkpoint", args=[job.pk, newest.pk])).status_code == 405
    assert operator.post(reverse("job-check-checkpoint", args=[other.pk, newest.pk])).status_code == 404
