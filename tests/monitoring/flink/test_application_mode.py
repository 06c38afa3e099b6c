"""A real Flink in application mode: each end leads to one new cluster, which continues from the newest state."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from django.db import connection

from dashboard.acts.canceling import cancel_job
from dashboard.acts.intents import Intent
from monitoring.launches import remember_edit
from monitoring.models import Cluster, DiscoverySource, FoundResource, Job, RestartAttempt
from monitoring.polling import store
from monitoring.polling.claim import LEASE
from monitoring.reasons.engines import EngineReason
from monitoring.recovery import cycle as recovery
from monitoring.recovery.attempt import TIME_LIMIT
from monitoring.recovery.manual import restart_from
from monitoring.recovery.moving import CLAIM
from monitoring.savepoints.stops import HOLD_DOWN
from tests.monitoring.flink.application import FlinkApplication
from tests.monitoring.flink.history_server import HistoryServer
from tests.monitoring.flink.ledger import Ledger
from tests.monitoring.flink.waymark import Waymark
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.long, pytest.mark.django_db(transaction=True), pytest.mark.timeout(900)]
NAME = "Flink Streaming Job"


@pytest.fixture
def switches(tmp_path: Path) -> Path:
    directory = tmp_path / "switches"
    directory.mkdir()
    return directory


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "out")


@pytest.fixture
def application(
    libraries: Path, java_home: Path, jars: dict[str, bytes], switches: Path, ledger: Ledger, tmp_path: Path
) -> Iterator[FlinkApplication]:
    arguments = [str(switches), str(ledger.directory)]
    made = FlinkApplication.prepare(
        libraries, java_home, tmp_path / "application", jars["ledger-1"], "LedgerJob", arguments
    )
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def history(libraries: Path, java_home: Path, application: FlinkApplication, tmp_path: Path) -> HistoryServer:
    """Return a History Server of the application's clusters. It does not run yet."""
    return HistoryServer(libraries, java_home, tmp_path, application.archive)


@pytest.fixture
def waymark(settings: Any, application: FlinkApplication) -> Iterator[Waymark]:
    settings.STATE_ROOTS = (str(application.directory),)
    with Waymark() as worker:
        yield worker


@pytest.fixture
def job(application: FlinkApplication, waymark: Waymark) -> Job:
    """Return a job that runs in an application cluster, with two checkpoints."""
    Cluster.objects.create(name=uuid.uuid4().hex, rest_url=application.url, poll_interval_s=1)
    application.begin(uuid.uuid4().hex)
    try:
        job = waymark.job(NAME)
    except AssertionError as error:
        error.add_note(application.said())
        raise
    launch = {"kind": "command", "command": application.command()}
    remember_edit(job, launch, "ada", waymark.now())
    waymark.until("checkpoints are known", lambda: job.runs.get().checkpoints.filter(status="COMPLETED").count() > 1)
    job.refresh_from_db()
    return job


def fails(application: FlinkApplication, switches: Path) -> None:
    """Let the job fail: its cluster ends with it. The task manager, which nobody ends, is killed."""
    (job_id,) = (each["jid"] for each in application.jobs())
    (switches / "fail").touch()
    eventually("the cluster has ended", lambda: not application.jobs())
    eventually("it has archived the job", lambda: application.is_archived(job_id))
    (switches / "fail").unlink()
    application.kill()


def report(cluster: Cluster, waymark: Waymark, state: str, job_id: str) -> None:
    source, _ = DiscoverySource.objects.get_or_create(name="east")
    now = waymark.now()
    values = {"state": {"job": state, "job_id": job_id}, "found_at": now, "changed_at": now, "cluster": cluster}
    named = {"kind": "flinkdeployments.flink.apache.org", "namespace": "prod", "name": "orders"}
    FoundResource.objects.update_or_create(source=source, **named, defaults=values)


def killed(work: Callable[[], object], when: Callable[[], bool]) -> None:
    """Repeat `work` in another process, and kill that process with SIGKILL as soon as `when` is true."""
    connection.close()
    child = os.fork()
    if child == 0:
        while True:
            work()
    try:
        eventually("it is time to die", when)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def newest_checkpoint(application: FlinkApplication, job_id: str) -> str:
    written = (application.checkpoints / job_id).glob("chk-*/_metadata")
    number = max(int(path.parent.name.removeprefix("chk-")) for path in written)
    return f"{application.checkpoints}/{job_id}/chk-{number}"


def counts_on(ledger: Ledger) -> None:
    """Wait for new entries, and for a moment with every number once: the two writers do not commit at the same time."""
    counted = len(ledger.entries())

    def is_exact() -> bool:
        with suppress(AssertionError):
            return len(ledger.assert_exact()) > counted
        return False

    eventually("it counts on, every number once", is_exact)


@pytest.mark.parametrize("dies", ["never", "after its intent", "after the start"])
def test_a_failed_application_is_started_again_once(
    job: Job, application: FlinkApplication, waymark: Waymark, switches: Path, ledger: Ledger, dies: str
) -> None:
    was = job.current_run.engine_job_id
    fails(application, switches)
    kept = newest_checkpoint(application, was)
    waymark.until("it is silent", lambda: Cluster.objects.filter(unreachable_since__isnull=False).exists())
    assert Job.objects.get().current_run.state == "RUNNING", "silence proves nothing"
    report(job.cluster, waymark, "FAILED", was)
    waymark.until("its end is known", lambda: Job.objects.filter(current_run__state="FAILED").exists())
    Job.objects.update(auto_restart=True)
    if dies != "never":
        moments = {
            "after its intent": lambda: RestartAttempt.objects.filter(launch_sent_at__isnull=False).exists(),
            "after the start": lambda: len(application.clusters()) == 2,
        }
        killed(lambda: recovery.advance(waymark.now()), moments[dies])
        waymark.ahead += CLAIM

    def runs() -> bool:
        DiscoverySource.objects.update(last_answer_at=waymark.now())
        new = Job.objects.filter(current_run__state="RUNNING").exclude(current_run=job.current_run)
        return new.exists() and not RestartAttempt.objects.filter(ended_at=None).exists()

    if dies == "after its intent":
        # The command may have started before the worker died. If not, the platform shows that nothing was started.
        try:
            waymark.until("a started cluster answers", runs, 45)
        except AssertionError:
            waymark.ahead += TIME_LIMIT
    waymark.until("it runs again", runs)
    attempt = RestartAttempt.objects.order_by("-epoch").first()
    assert attempt is not None
    assert attempt.state == "succeeded", attempt.error
    assert attempt.restore_path.removeprefix("file:") == kept
    assert len(application.clusters()) == 2
    assert [each["jid"] for each in application.jobs()] == [attempt.engine_job_id]
    counts_on(ledger)


@pytest.mark.parametrize("is_read", [True, False])
def test_a_restart_by_a_person_stops_one_cluster_and_starts_one(
    job: Job, application: FlinkApplication, waymark: Waymark, ledger: Ledger, is_read: bool
) -> None:
    """`is_read`: whether the result of the stop is read before the cluster has ended.

    Flink itself waits for that, for up to five minutes (`rest.async.store-duration`), but its platform may not.
    """
    attempt = restart_from(job, None, "ada", waymark.now())
    waymark.until("the stop is ordered", lambda: job.savepoints.filter(state="in_progress").exists())
    if not is_read:
        eventually("the job has ended", lambda: [each["state"] for each in application.jobs()] == ["FINISHED"])
        application.kill()
        waymark.until("it is silent", lambda: Cluster.objects.filter(unreachable_since__isnull=False).exists())
        waymark.ahead += HOLD_DOWN
    waymark.ended(attempt)
    assert attempt.state == "succeeded", attempt.error
    savepoint = job.savepoints.get()
    assert savepoint.path == attempt.restore_path
    assert Path(savepoint.path.removeprefix("file:")).parent == application.savepoints
    assert len(application.clusters()) == 2
    assert list(job.runs.order_by("number").values_list("state", flat=True)) == ["FINISHED", "RUNNING"]
    counts_on(ledger)


def test_a_job_that_waymark_cancels_has_ended_without_a_poll_of_its_end(
    job: Job, application: FlinkApplication, waymark: Waymark
) -> None:
    Job.objects.update(auto_restart=True)
    cancel_job(Job.objects.select_related("cluster", "current_run").get(), "ada", "wrong input", Intent())
    eventually("the cluster has ended", lambda: not application.jobs())
    application.kill()
    waymark.until("it is silent", lambda: Cluster.objects.filter(unreachable_since__isnull=False).exists())
    assert Job.objects.get().current_run.state == "RUNNING"
    waymark.ahead += HOLD_DOWN
    waymark.until("its end is known", lambda: Job.objects.filter(current_run__state="CANCELED").exists())
    assert Cluster.objects.get().has_ended
    assert not RestartAttempt.objects.exists()
    assert len(application.clusters()) == 1


@pytest.mark.parametrize("dies", [False, True])
def test_the_history_server_shows_a_failure_that_nothing_else_reports(
    job: Job,
    application: FlinkApplication,
    waymark: Waymark,
    switches: Path,
    ledger: Ledger,
    history: HistoryServer,
    tmp_path: Path,
    dies: bool,
) -> None:
    """It is down at first. `dies`: a worker is killed after it has read the end, and before it has stored it."""
    Cluster.objects.update(history_server=history.url)
    was = job.current_run.engine_job_id
    fails(application, switches)
    kept = newest_checkpoint(application, was)
    Job.objects.update(auto_restart=True)
    waymark.until("it is down, too", lambda: _why_silent() is EngineReason.WITHOUT_ARCHIVES)
    assert Job.objects.get().current_run.state == "RUNNING", "silence proves nothing"
    with history.running():
        if dies:
            _dies_before_it_stores(waymark, tmp_path / "read")
            assert Job.objects.get().current_run.state == "RUNNING"
            waymark.ahead += LEASE
        attempt = waymark.until("it is restarted", lambda: job.restart_attempts.first())
        waymark.ended(attempt)
    assert attempt.state == "succeeded", attempt.error
    run = job.runs.get(number=1)
    assert (run.state, run.final_read_done) == ("FAILED", True)
    assert "The switch says fail" in run.exception
    newest = run.checkpoints.filter(status="COMPLETED").order_by("-checkpoint_id").first()
    assert newest is not None
    assert attempt.restore_path == newest.external_path
    assert newest.external_path.removeprefix("file:") == kept
    assert len(application.clusters()) == 2
    counts_on(ledger)


def test_the_history_server_shows_that_a_job_was_canceled_elsewhere(
    job: Job, application: FlinkApplication, waymark: Waymark, history: HistoryServer
) -> None:
    Job.objects.update(auto_restart=True)
    Cluster.objects.update(history_server=history.url)
    cancel = Request(f"{application.url}/jobs/{job.current_run.engine_job_id}?mode=cancel", method="PATCH")
    urlopen(cancel, timeout=30).close()
    eventually("the cluster has ended", lambda: not application.jobs())
    eventually("it has archived the job", lambda: application.is_archived(job.current_run.engine_job_id))
    application.kill()
    with history.running():
        waymark.until("its end is known", lambda: Job.objects.filter(current_run__state="CANCELED").exists())
        waymark.until("the silence is explained", lambda: Cluster.objects.get().has_ended)
    assert not RestartAttempt.objects.exists()
    assert len(application.clusters()) == 1


def _why_silent() -> object:
    why = Cluster.objects.get().last_error_value
    return None if why is None else why.code


def _dies_before_it_stores(waymark: Waymark, has_read: Path) -> None:
    """Poll in another process, and kill that process with SIGKILL as soon as it has read the end of the run."""
    connection.close()
    child = os.fork()
    if child == 0:

        def hang(*_: object) -> None:
            has_read.touch()
            signal.pause()

        store._end_reported = hang  # type: ignore[assignment]
        with Waymark() as worker:
            worker.ahead = waymark.ahead
            worker.until("it is killed", lambda: None)
    try:
        eventually("it has read the end", has_read.exists)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
