"""The pipeline's job is submitted once and kept running. It is started again only for another program."""

from __future__ import annotations

import hashlib
import stat
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from monitoring import history_job
from monitoring.history.packing import packed, place
from monitoring.history_job import (
    NAME,
    Cancel,
    Facts,
    Leave,
    RestoreOld,
    Submit,
    Upgrade,
    decide,
    keep_running,
    why_not_running,
)
from monitoring.models import AttemptState, Cluster, Engine, Job, Program, RestartAttempt, RunState
from monitoring.programs import keep
from monitoring.reasons.automation import AutomationReason
from monitoring.reasons.health import HealthReason
from monitoring.reasons.reason import Reason
from monitoring.reasons.report import CycleReport
from monitoring.reasons.work import WorkReason
from tests.monitoring.fake_job_manager import FakeJobManager
from tests.monitoring.reported import done, left

IN_VAIN = WorkReason.PIPELINE_RESTART_FAILED(epoch=1, why="It does not start.")
RUNNING = Facts(
    wanted=True,
    reachable=True,
    state=RunState.RUNNING,
    up_to_date=True,
    attempt_open=False,
    recent_failure=None,
    paused=None,
)


@pytest.mark.parametrize(
    ("facts", "decided"),
    [
        ({}, Leave(WorkReason.PIPELINE_AS_WANTED())),
        ({"state": None}, Submit()),
        ({"state": None, "wanted": False}, Leave(WorkReason.PIPELINE_OFF())),
        ({"state": None, "reachable": False}, Leave(WorkReason.PIPELINE_SILENT())),
        ({"up_to_date": False}, Upgrade()),
        ({"up_to_date": False, "state": RunState.RESTARTING}, Leave(WorkReason.PIPELINE_AS_WANTED())),
        ({"up_to_date": False, "recent_failure": IN_VAIN}, Leave(IN_VAIN)),
        ({"up_to_date": False, "paused": AutomationReason.PAUSED()}, Leave(AutomationReason.PAUSED())),
        ({"wanted": False}, Cancel()),
        ({"wanted": False, "state": RunState.RESTARTING}, Cancel()),
        ({"wanted": False, "state": RunState.CANCELLING}, Leave(WorkReason.PIPELINE_STOPPING())),
        ({"wanted": False, "state": RunState.CANCELED}, Leave(WorkReason.PIPELINE_OFF())),
        ({"state": RunState.CANCELED}, RestoreOld(RunState.CANCELED)),
        ({"state": RunState.FINISHED}, RestoreOld(RunState.FINISHED)),
        ({"state": RunState.FINISHED, "recent_failure": IN_VAIN}, Leave(IN_VAIN)),
        ({"state": RunState.FINISHED, "attempt_open": True}, Leave(WorkReason.PIPELINE_RESTARTING())),
        ({"state": RunState.FAILED}, Leave(WorkReason.PIPELINE_DEAD())),
        ({"state": RunState.FAILED, "up_to_date": False}, Upgrade()),
        ({"state": RunState.FAILED, "up_to_date": False, "recent_failure": IN_VAIN}, Leave(IN_VAIN)),
        ({"state": RunState.FAILED, "up_to_date": False, "wanted": False}, Leave(WorkReason.PIPELINE_DEAD())),
        ({"state": RunState.LOST}, Leave(WorkReason.PIPELINE_DEAD())),
    ],
)
def test_the_decision_for_each_state(facts, decided):
    assert decide(replace(RUNNING, **facts)) == decided


def unchanged(why: Reason) -> CycleReport:
    return left(WorkReason.NO_PIPELINE_CHANGE(why=why))


@pytest.fixture
def cluster(rows, job_manager: FakeJobManager, settings, tmp_path: Path) -> Cluster:
    settings.VAR_DIR = tmp_path
    settings.HISTORY_PIPELINE = True
    settings.EMBEDDED_CLUSTER_URL = job_manager.url
    return rows.cluster(name="waymark", rest_url=job_manager.url, engine=Engine.SPARK, last_answer_at=rows.now)


@pytest.fixture
def submitted(cluster: Cluster, rows, job_manager: FakeJobManager, now) -> Job:
    """Return the submitted job, which runs and was polled."""
    keep_running(now)
    job = Job.objects.get(name=NAME)
    rows.run(job, engine_job_id=next(iter(job_manager.jobs)), started_at=now)
    return job


def test_the_job_is_submitted_once_with_its_settings(cluster, job_manager, now):
    assert keep_running(now) == done(WorkReason.PIPELINE_SUBMITTED(name=NAME))
    assert keep_running(now) == left(WorkReason.PIPELINE_RUNS_ALREADY(name=NAME))
    (sent,) = job_manager.ran
    assert sent["programArgsList"] == ["--dsn-file", str(place()), "--every", "60 seconds"]
    assert sent["flinkConfiguration"]["pipeline.name"] == NAME
    assert list(job_manager.jars.values())[-1] == packed()
    job = Job.objects.get(cluster=cluster, name=NAME)
    assert job.auto_restart
    assert job.launch["jar_id"] in job_manager.jars
    assert Program.objects.get().sha256 == hashlib.sha256(packed()).hexdigest()


def test_a_start_with_a_lost_answer_is_not_repeated(cluster, job_manager, now):
    job_manager.loses_answer_of.add("run")
    assert keep_running(now).left[0].code is WorkReason.PIPELINE_NOT_CHANGED
    job_manager.loses_answer_of.clear()
    keep_running(now)
    assert len(job_manager.ran) == 1


def test_the_job_starts_after_the_others(cluster, job_manager, now):
    other = job_manager.add("f" * 32, "demo", "INITIALIZING")
    assert keep_running(now) == left(WorkReason.PIPELINE_WAITS(name=NAME, others=["demo"]))
    assert not job_manager.ran
    other.state = "RUNNING"
    keep_running(now)
    assert len(job_manager.ran) == 1


def test_the_file_with_the_dsn_is_private_and_connects_to_the_database(cluster, now):
    keep_running(now)
    assert stat.S_IMODE(place().stat().st_mode) == 0o600
    before = place().stat().st_mtime_ns
    keep_running(now)
    assert place().stat().st_mtime_ns == before
    with psycopg.connect(place().read_text()) as connection:
        assert connection.execute("SELECT count(*) FROM monitoring_rollupprogress").fetchone() == (0,)


def test_a_job_that_runs_with_this_program_is_not_changed(submitted, job_manager, now):
    calls = list(job_manager.calls)
    assert keep_running(now) == unchanged(WorkReason.PIPELINE_AS_WANTED())
    assert job_manager.calls == calls


def test_another_program_is_started_from_the_savepoint_of_the_old_one(submitted, job_manager, now):
    submitted.launch = {**submitted.launch, "jar_id": "old.zip", "configuration": {"spark.driver.memory": "1g"}}
    submitted.save()
    keep(submitted.cluster, "old.zip", "waymark_history.zip", b"the program of before", "ada", now)
    assert keep_running(now) == done(WorkReason.PIPELINE_UPGRADED(name=NAME))
    attempt = RestartAttempt.objects.get()
    assert (attempt.from_stop, attempt.goes_back) == (True, True)
    assert attempt.launch["configuration"] == {"spark.driver.memory": "1g"}
    assert job_manager.jars[attempt.launch["jar_id"]] == packed()
    uploads = job_manager.count("upload")
    assert keep_running(now) == unchanged(WorkReason.PIPELINE_RESTARTING())

    # A failed restart is tried again, but not at once.
    RestartAttempt.objects.update(state=AttemptState.FAILED, error="It does not start.")
    assert keep_running(now) == unchanged(IN_VAIN)
    assert str(keep_running(now)).endswith("its restart 1 failed: It does not start.")
    assert job_manager.count("upload") == uploads
    keep_running(now + timedelta(minutes=11))
    assert RestartAttempt.objects.count() == 2


def test_the_job_is_cancelled_when_disabled_and_continues_when_enabled(submitted, job_manager, settings, now):
    settings.HISTORY_PIPELINE = False
    assert keep_running(now) == done(WorkReason.PIPELINE_CANCELED(name=NAME))
    assert [job.state for job in job_manager.jobs.values()] == ["CANCELED"]
    submitted.current_run.state = RunState.CANCELED
    submitted.current_run.save()
    assert keep_running(now) == unchanged(WorkReason.PIPELINE_OFF())

    settings.HISTORY_PIPELINE = True
    assert "WAYMARK_HISTORY_PIPELINE requires it to run" in str(keep_running(now))
    attempt = RestartAttempt.objects.get()
    assert (attempt.trigger, attempt.restore_path) == ("automatic", "")  # recovery chooses the newest snapshot


def test_without_an_embedded_job_manager_nothing_is_submitted(cluster, job_manager, settings, now):
    settings.EMBEDDED_CLUSTER_URL = ""
    assert keep_running(now) is None
    assert not job_manager.calls


class TestWhyItDoesNotRun:
    def test_the_job_has_time_to_start(self, cluster, now):
        cluster.created_at = now
        cluster.save()
        assert why_not_running(now) is None
        assert why_not_running(now + timedelta(minutes=6)) == HealthReason.PIPELINE_NEVER_STARTED()

    def test_a_running_pipeline_has_no_reason(self, submitted, now):
        assert why_not_running(now + timedelta(days=1)) is None

    def test_a_failed_pipeline_has_its_exception(self, submitted, now):
        run = submitted.current_run
        run.state, run.exception = RunState.FAILED, "OSError: no database"
        run.save()
        why = HealthReason.PIPELINE_IS_BECAUSE(state="FAILED", why="OSError: no database")
        assert why_not_running(now) == why

    def test_a_pipeline_with_paused_automation_has_the_pause(self, submitted, now):
        submitted.automation_paused = True
        submitted.save()
        submitted.current_run.state = RunState.CANCELED
        submitted.current_run.save()
        why = HealthReason.PIPELINE_IS_PAUSED(state="CANCELED", pause=AutomationReason.PAUSED())
        assert why_not_running(now) == why

    def test_a_disabled_pipeline_has_no_reason(self, cluster, settings, now):
        settings.HISTORY_PIPELINE = False
        assert why_not_running(now + timedelta(days=1)) is None


def test_settings_are_of_the_engine(now):
    """A misspelt setting would be ignored, or refused at each start."""
    from checkpointing.model.configuration import CheckpointConfiguration

    parsed = CheckpointConfiguration.parse(history_job.CONFIGURATION)
    assert parsed.periodic
