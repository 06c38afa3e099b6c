"""Attempts of one cycle run in parallel. No attempt waits for another one's engine or launch command."""

import sys
from datetime import timedelta

import pytest

from monitoring.models import Job, RestartAttempt, RunState
from monitoring.recovery import cycle, moving
from monitoring.recovery.cycle import advance
from tests.monitoring.fake_job_manager import running_job_manager
from tests.monitoring.recovery.conftest import LAUNCH

STARTS_AFTER = """#!{python}
import json, sys, time, urllib.request as web
savepoint, job_id = sys.argv[1:]
def names():
    return [job["name"] for job in json.load(web.urlopen("{url}/jobs/overview"))["jobs"] if job["state"] == "RUNNING"]
while "{name}" not in names():
    time.sleep(0.05)
body = {{"savepointPath": savepoint, "jobId": job_id, "flinkConfiguration": {{"pipeline.name": "flights"}}}}
web.urlopen(web.Request("{url}/jars/program.py/run", json.dumps(body).encode(), method="POST")).read()
"""


@pytest.fixture
def dead(rows, job_manager):
    """Return a function that stores a job that died five seconds ago, with the launch record `LAUNCH`."""

    def make(cluster, name, manager=job_manager, **values) -> Job:
        job = rows.job(cluster, name=name, auto_restart=True, max_restarts_per_hour=6, **{"launch": LAUNCH} | values)
        run = rows.run(job, RunState.FAILED, final_read_done=True)
        rows.checkpoint(run, 7, external_path=f"file:/chk/{name}")
        manager.add(run.engine_job_id, name, "FAILED")
        return job

    return make


@pytest.fixture
def starts_after(job_manager, tmp_path):
    """Return a function that gives the launch record of a command, which ends once the job `name` runs."""

    def write(name):
        path = tmp_path / "start.py"
        path.write_text(STARTS_AFTER.format(python=sys.executable, url=job_manager.url, name=name))
        path.chmod(0o755)
        return {"kind": "command", "command": [str(path), "{savepoint}", "{job_id}"], "limit_s": 60}

    return write


def started(name):
    return RestartAttempt.objects.get(job__name=name).launched_at is not None


def test_a_slow_command_delays_no_other_restart(job, dead, starts_after, now):
    job.launch = starts_after("hotels")
    job.save()
    dead(job.cluster, "hotels")
    advance(now)
    assert started("hotels")
    assert started("flights")


def test_a_restart_that_becomes_due_during_a_cycle_is_processed(job, dead, starts_after, now):
    job.launch = starts_after("hotels")
    job.save()
    hotels = dead(job.cluster, "hotels")
    cycle._decide_all(now)
    RestartAttempt.objects.filter(job=hotels).update(next_step_at=now + timedelta(seconds=1))
    moving.move_attempts(now)
    assert started("hotels")
    assert started("flights")


def test_a_cluster_that_hangs_delays_no_other_restart(rows, job, job_manager, dead, now):
    order = []
    with running_job_manager() as hanging:
        cluster = rows.cluster(rest_url=hanging.url, request_limit_s=60)
        dead(cluster, "hotels", hanging)
        hanging.hangs_at = {"jars"}
        real_run, real_wait = job_manager._run, hanging.release.wait

        def run(*given):
            order.append("flights is started")
            hanging.release.set()
            return real_run(*given)

        def hang(limit_s):
            real_wait(limit_s)
            order.append("the other cluster hangs no more")

        job_manager._run, hanging.release.wait = run, hang
        advance(now)
    assert order[:2] == ["flights is started", "the other cluster hangs no more"]


def test_a_claim_is_renewed_while_its_act_is_under_way(job, tmp_path, now, monkeypatch):
    """Otherwise another worker would start the job, too, if the command takes long."""
    path, claims = tmp_path / "start.sh", []
    path.write_text(f"#!/bin/sh\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.05; done\n")
    path.chmod(0o755)
    job.launch = {"kind": "command", "command": [str(path), "{savepoint}", "{job_id}"], "limit_s": 60}
    job.save()
    real = moving._due

    def due(*given):
        claims.extend(RestartAttempt.objects.filter(state="launching").values_list("claimed_until", flat=True))
        if claims and (claims[-1] > claims[0] or len(claims) == 100):
            (tmp_path / "go").touch()
        return real(*given)

    monkeypatch.setattr(moving, "_due", due)
    monkeypatch.setattr(moving, "DUE_CHECK_EVERY_S", 0.1)
    monkeypatch.setattr(moving, "CLAIM", timedelta(seconds=3))
    advance(now)
    assert claims[-1] > claims[0]
    assert started("flights")
