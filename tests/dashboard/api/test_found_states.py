"""The API offers a checkpoint that no poll saw and that was found in the directory of a dead run."""

from __future__ import annotations

import socket
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest
from pytest_django import Settings

from dashboard.queries import states
from monitoring.models import Checkpoint, Job
from monitoring.savepoints.storage_threads import STORAGE_THREADS
from tests.dashboard import builders as make
from tests.dashboard.api.conftest import Caller
from tests.monitoring.savepoints.snapshots import lay_down, metadata
from tests.waiting import eventually


def test_found_checkpoint_is_offered_while_it_exists(
    api: Caller, job: Job, now: datetime, tmp_path: Path, settings: Settings
) -> None:
    settings.STATE_ROOTS = (str(tmp_path),)
    run = make.make_run(job, now, state="LOST", ended_at=now - timedelta(seconds=5))
    [seen] = make.make_checkpoints(run, now - timedelta(seconds=24), make.Shape(count=1))
    directory = tmp_path / run.engine_job_id
    Checkpoint.objects.filter(pk=seen.pk).update(external_path=f"file:{directory}/chk-1")
    lying = lay_down("2.3.0-rocksdb-0b-checkpoint", directory / "chk-2")
    [offered] = [state for state in api.get(f"/jobs/{job.pk}/restart-states").json() if state["found"]]
    assert (offered["path"], offered["label"]) == (f"file:{lying}", "Checkpoint 2")
    (lying / "_metadata").unlink()
    refused = api.post(f"/jobs/{job.pk}/restart", {"state": offered["key"]})
    [wrong] = refused.json()["error"]["fields"]
    assert (refused.status_code, wrong["field"]) == (422, "state")
    assert "which was found in the directory of run 2, no longer exists" in wrong["message"]
    (lying / "_metadata").write_bytes(metadata("2.3.0-rocksdb-0b-checkpoint"))
    assert api.post(f"/jobs/{job.pk}/restart", {"state": offered["key"]}).json()["restore_path"] == f"file:{lying}"


def test_unresponsive_storage_is_reported_with_the_known_snapshots(
    api: Caller, job: Job, now: datetime, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "LISTED_WITHIN_S", 0.3)
    run = make.make_run(job, now, state="LOST", ended_at=now - timedelta(seconds=5))
    [seen] = make.make_checkpoints(run, now - timedelta(seconds=24), make.Shape(count=1))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        root = f"ftp://127.0.0.1:{mute.getsockname()[1]}/été"
        settings.STATE_ROOTS = (root,)
        Checkpoint.objects.filter(pk=seen.pk).update(external_path=f"{root}/{run.engine_job_id}/chk-1")
        answer = api.get(f"/jobs/{job.pk}/restart-states")
        assert f"checkpoint-{seen.pk}" in [state["key"] for state in answer.json()]
        why = f"{root}/{run.engine_job_id} could not be checked within 0.3 s: its storage does not respond."
        assert unquote(answer.headers["Waymark-Incomplete"]) == why
        refused = api.post(f"/jobs/{job.pk}/restart", {"state": f"found-{run.number}-2"})
        assert refused.status_code == 409
        assert refused.json()["error"]["message"] == f"Nothing was stopped or started. {why}"
    eventually("nothing hangs any more", lambda: not STORAGE_THREADS.hanging(f" {root}"), 60)
