"""A job from a jar on a real Flink is found, rescaled, upgraded, reverted and cloned. Every number is counted once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from monitoring.launches import remember_edit
from monitoring.models import Cluster, Job, RestartAttempt
from monitoring.recovery.manual import restart_from
from tests.monitoring.flink.cluster import FlinkCluster
from tests.monitoring.flink.jobs import CONFIGURATION, CountJobs
from tests.monitoring.flink.ledger import Ledger
from tests.monitoring.flink.waymark import Waymark

pytestmark = [pytest.mark.nightly, pytest.mark.long, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]


@pytest.fixture
def waymark(flink: FlinkCluster) -> Iterator[Waymark]:
    Cluster.objects.create(name=f"real {uuid.uuid4().hex}", rest_url=flink.url, poll_interval_s=1)
    with Waymark() as worker:
        yield worker


@pytest.fixture
def ledger_jobs(flink: FlinkCluster, jars: dict[str, bytes], tmp_path: Path) -> Iterator[CountJobs]:
    with CountJobs(flink, jars["ledger-1"], tmp_path) as started:
        yield started


class Person:
    """An administrator who uses the job's page."""

    def __init__(self, switches: Path) -> None:
        self._client = Client()
        self._client.force_login(User.objects.create_superuser(f"ada-{uuid.uuid4().hex[:6]}", password="pw"))
        self._switches = switches

    def launches(self, job: Job, output: Path, **typed: Any) -> RestartAttempt | None:
        """Fill in and submit the form. Return the restart that it causes, if there is one."""
        configuration = "\n".join(f"{key}: {value}" for key, value in CONFIGURATION.items())
        filled = {
            "kind": "flink-jar",
            "jar_id": (job.launch or {}).get("jar_id", ""),
            "entry_class": "LedgerJob",
            "program_args": f"{self._switches}\n{output}",
            "configuration": f"{configuration}\nrestart-strategy.type: none",
            "parallelism": "2",
            "now": "replace",
            "state": "stop",
            "goes_back": "on",
        }
        before = RestartAttempt.objects.count()
        answer = self._client.post(reverse("job-launch", args=[job.pk]), filled | typed)
        assert answer.status_code == 302, answer.context["form"].errors
        return RestartAttempt.objects.order_by("-pk").first() if RestartAttempt.objects.count() > before else None


def forget_jars(jobs: CountJobs) -> None:
    """Delete all jars, as a new job manager does."""
    for jar in jobs.ask(lambda client: client.jars()):
        jobs.ask(lambda client, jar_id=jar.id: client.delete_jar(jar_id))


def upload(name: str, content: bytes) -> SimpleUploadedFile:
    return SimpleUploadedFile(f"{name}.jar", content)


def test_a_live_job_is_restored_from_its_newest_checkpoint(
    flink: FlinkCluster, ledger_jobs: CountJobs, waymark: Waymark, tmp_path: Path, settings: Any
) -> None:
    """Flink deletes this checkpoint when the job is stopped with a savepoint."""
    settings.STATE_ROOTS = (str(flink.checkpoints),)
    configuration = CONFIGURATION | {
        "execution.checkpointing.interval": "15 s",  # so that no newer checkpoint replaces it meanwhile
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "none",
    }
    name, arguments = f"back {uuid.uuid4().hex[:6]}", [str(ledger_jobs.switches), str(tmp_path / "out")]
    old = ledger_jobs.start(name, configuration=configuration, program_args=arguments[1:])
    job = waymark.job(name)
    spec = {"kind": "flink-jar", "jar_id": ledger_jobs.jar_id, "program_args": arguments, "entry_class": None}
    remember_edit(job, spec | {"configuration": configuration, "parallelism": 2}, "ada", timezone.now())
    done = job.runs.get().checkpoints.filter(status="COMPLETED", is_savepoint=False)
    path = waymark.until("its checkpoint is known", done.first).external_path
    job.refresh_from_db()

    attempt = waymark.ended(restart_from(job, path, "ada", waymark.now()))
    assert (attempt.state, attempt.restore_path) == ("succeeded", path), attempt.error
    ledger_jobs.adopt(attempt.engine_job_id)
    assert attempt.stop_savepoint.state == "completed"
    assert flink.state(old) == "CANCELED"
    restored = flink.get(f"/jobs/{attempt.engine_job_id}/checkpoints")["latest"]["restored"]
    assert restored["external_path"].removeprefix("file:").lstrip("/") == path.removeprefix("file:").lstrip("/")


def test_a_job_from_a_jar_is_upgraded_and_its_ledger_remains_exact(
    ledger_jobs: CountJobs, jars: dict[str, bytes], waymark: Waymark, tmp_path: Path
) -> None:
    name, ledger = f"ledger {uuid.uuid4().hex[:6]}", Ledger(tmp_path / "out")
    ada = Person(ledger_jobs.switches)
    ledger_jobs.start(name, program_args=[str(ledger.directory)])
    job = waymark.job(name)
    assert job.launch is None  # found on the cluster, so its launch is unknown

    ada.launches(job, ledger.directory, now="save", upload=upload("ledger", jars["ledger-1"]))
    job.refresh_from_db()
    rescaled = ended(waymark, ada.launches(job, ledger.directory, parallelism="3"))
    assert rescaled.state == "succeeded", rescaled.error
    assert {each["parallelism"] for each in rescaled.new_run.vertices} == {3}

    upgraded = ended(waymark, ada.launches(job, ledger.directory, upload=upload("ledger", jars["ledger-2"])))
    assert upgraded.state == "succeeded", upgraded.error
    waymark.until("the new version counts", lambda: "2" in ledger.versions())

    misfit = ended(waymark, ada.launches(job, ledger.directory, upload=upload("ledger", jars["misfit"])))
    assert "the operator is not available in the new program" in misfit.error
    back = ended(waymark, misfit.way_back)
    assert (back.state, back.restore_path) == ("succeeded", misfit.stop_savepoint.path)

    forget_jars(ledger_jobs)
    job = waymark.job(name)
    older = ended(waymark, ada.launches(job, ledger.directory, version="1", **first_version(job)))
    assert older.state == "succeeded", older.error
    assert "Upload the program" in [step.name for step in older.steps.all()]

    saved = waymark.stopped_with_savepoint(name)
    entries = ledger.assert_exact()
    assert {entry.version for entry in entries} == {"1", "2"}

    # Flink's file sink stores its directory in its state, so the clone writes to the first job's ledger.
    cloned = ada.launches(job, ledger.directory, now="clone", name=f"{name} copy", state=f"savepoint-{saved.pk}")
    assert ended(waymark, cloned).state == "succeeded"
    waymark.until("the copy counts on", lambda: len(ledger.entries()) > len(entries))
    waymark.stopped_with_savepoint(f"{name} copy")
    assert len(ledger.assert_exact()) > len(entries)


def first_version(job: Job) -> dict[str, str]:
    spec = job.launch_versions.get(number=1).spec
    return {"jar_id": spec["jar_id"], "parallelism": str(spec["parallelism"])}


def ended(waymark: Waymark, attempt: RestartAttempt | None) -> RestartAttempt:
    assert attempt is not None
    return waymark.ended(attempt)
