"""Checkpoints in the directory of a dead run that no poll saw are offered, and refused after their deletion."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from dashboard.queries import states
from dashboard.queries.states import Choice, offered_snapshots
from monitoring.models import CheckedState, Job, RestartAttempt, Run
from monitoring.savepoints.storage_threads import STORAGE_THREADS
from tests.dashboard import builders as make
from tests.dashboard import sample_fleet
from tests.monitoring.savepoints import snapshots
from tests.waiting import eventually

pytestmark = pytest.mark.django_db
SAMPLE = sample_fleet.LEFT_BEHIND


@pytest.fixture
def root(state_root: Path) -> Path:
    return state_root


@pytest.fixture
def job(root: Path, now: datetime) -> Job:
    return sample_fleet.make_job_with_unlisted_checkpoint(now, make.make_cluster(now), root)


@pytest.fixture
def dead(job: Job) -> Run:
    return job.runs.get()


def place(root: Path, run: Run, number: int) -> Path:
    return root / run.engine_job_id / f"chk-{number}"


def found(job: Job) -> list[Choice]:
    return [choice for choice in offered_snapshots(job).choices if choice.found]


def page(client: Client, job: Job, **query: str) -> str:
    return " ".join(client.get(reverse("job-restart", args=[job.pk]), query).content.decode().split())


def test_found_checkpoint_is_offered_with_age_size_and_location(operator: Client, job: Job, dead: Run) -> None:
    [choice] = found(job)
    assert (choice.key, choice.label, choice.run) == (f"found-{dead.number}-4", "Checkpoint 4", dead)
    assert choice.taken_at == dead.checkpoints.get(checkpoint_id=3).triggered_at + timedelta(seconds=10)
    whole = sum(snapshots.sizes(SAMPLE).values()) + len(snapshots.metadata(SAMPLE))
    assert choice.size == whole
    html = page(operator, job)
    assert f"found in the directory of run {dead.number}, not in the history" in html


def test_found_checkpoint_is_preselected_as_by_recovery(operator: Client, job: Job) -> None:
    html = page(operator, job)
    assert "Found in the checkpoint directory, not in the history:" in html
    assert 'name="from" value="found-1-4"' in html


def test_found_checkpoint_is_offered_with_those_of_the_history(operator: Client, job: Job) -> None:
    assert [choice.label for choice in offered_snapshots(job).choices] == [
        f"Checkpoint {number}" for number in (4, 3, 2, 1)
    ]
    seen = job.runs.get().checkpoints.get(checkpoint_id=3)
    chosen = page(operator, job, **{"from": f"checkpoint-{seen.pk}"})
    assert "Found in the checkpoint directory, not in the history:" not in chosen


def test_a_person_starts_the_job_from_a_found_checkpoint(operator: Client, job: Job, dead: Run, root: Path) -> None:
    operator.post(reverse("job-restart", args=[job.pk]), {"from": "found-1-4"})
    attempt = RestartAttempt.objects.get()
    assert attempt.restore_path == f"file:{place(root, dead, 4)}"
    assert attempt.restore_is_savepoint is False


def test_vanished_checkpoint_is_refused_with_a_reason(operator: Client, job: Job, dead: Run, root: Path) -> None:
    shutil.rmtree(place(root, dead, 4))
    address = reverse("job-restart", args=[job.pk])
    refused = operator.post(address, {"from": "found-1-4"}, follow=True).content.decode()
    assert "checkpoint 4, which was found in the directory of run 1, no longer exists" in refused
    assert not RestartAttempt.objects.exists()
    assert "The requested snapshot is no longer available." in page(operator, job, **{"from": "found-1-4"})


@pytest.mark.parametrize("nonsense", ["found-1-5", "found-9-4", "found-1-", "found--1-4", f"found-1-{'9' * 40}"])
def test_unknown_number_is_refused(operator: Client, job: Job, nonsense: str) -> None:
    operator.post(reverse("job-restart", args=[job.pk]), {"from": nonsense})
    assert not RestartAttempt.objects.exists()


def test_damage_of_a_found_checkpoint_is_shown(
    operator: Client, job: Job, dead: Run, root: Path, now: datetime
) -> None:
    path = f"file:{place(root, dead, 4)}"
    CheckedState.objects.create(job=job, path=path, checked_at=now, problem="a file is missing")
    assert "<b>Known to be damaged:</b> a file is missing" in page(operator, job, **{"from": "found-1-4"})


def test_a_found_checkpoint_with_unreadable_metadata_has_no_size(job: Job, dead: Run, root: Path) -> None:
    (place(root, dead, 4) / "_metadata").write_bytes(b"nonsense")
    [choice] = found(job)
    assert choice.size is None


def test_checkpoints_outside_the_state_roots_are_not_offered(job: Job, settings: Settings) -> None:
    settings.STATE_ROOTS = ()
    assert found(job) == []


def test_active_job_has_no_found_checkpoints(job: Job, dead: Run) -> None:
    Run.objects.filter(pk=dead.pk).update(state="RUNNING", ended_at=None)
    assert found(job) == []


class TestUnresponsiveStorage:
    """The storage is a server that accepts connections and never answers."""

    @pytest.fixture(autouse=True)
    def mute(self, job: Job, dead: Run, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            root = f"ftp://127.0.0.1:{listening.getsockname()[1]}/flink"
            settings.STATE_ROOTS = (root,)
            monkeypatch.setattr(states, "LISTED_WITHIN_S", 0.3)
            for seen in dead.checkpoints.all():
                where = f"{root}/{dead.engine_job_id}/chk-{seen.checkpoint_id}"
                dead.checkpoints.filter(pk=seen.pk).update(external_path=where)
            yield f"{root}/{dead.engine_job_id} could not be checked within 0.3 s: its storage does not respond."
        eventually("nothing hangs any more", lambda: not STORAGE_THREADS.hanging(f" {root}"), 60)

    def test_page_reports_the_unresponsive_storage(self, operator: Client, job: Job, mute: str) -> None:
        html = page(operator, job)
        assert f"<b>Newer checkpoints may exist:</b> {mute}" in html
        assert "from checkpoint 3" in html

    def test_page_does_not_claim_that_no_checkpoint_exists(
        self, operator: Client, job: Job, dead: Run, mute: str
    ) -> None:
        dead.checkpoints.update(status="FAILED")
        seen = dead.checkpoints.get(checkpoint_id=3)
        dead.checkpoints.filter(pk=seen.pk).update(status="COMPLETED", discarded=True)
        html = page(operator, job)
        assert mute in html
        assert "No snapshot to restart from" not in html

    def test_known_snapshot_can_be_used_without_the_storage(self, operator: Client, job: Job, dead: Run) -> None:
        seen = dead.checkpoints.get(checkpoint_id=3)
        operator.post(reverse("job-restart", args=[job.pk]), {"from": f"checkpoint-{seen.pk}"})
        assert RestartAttempt.objects.get().restore_path == seen.external_path

    def test_snapshot_on_unresponsive_storage_is_refused_with_the_reason(
        self, operator: Client, job: Job, mute: str
    ) -> None:
        address = reverse("job-restart", args=[job.pk])
        refused = operator.post(address, {"from": "found-1-4"}, follow=True).content.decode()
        assert f"Nothing was stopped or started. {mute}" in refused
        assert not RestartAttempt.objects.exists()

    def test_rows_written_again_are_unknown_for_a_found_checkpoint(self, operator: Client, job: Job) -> None:
        part = operator.get(reverse("restart-rows", args=[job.pk]), {"from": "found-1-4"})
        assert (part.status_code, part.content.strip()) == (200, b"")
