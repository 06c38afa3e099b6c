"""A leader dies while the storage is unavailable, for longer than the lease of the driver. The driver continues."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.chaos.cluster import Job, JobManagers
from tests.waiting import eventually

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.zookeeper,
    pytest.mark.timeout(600),
]

PROGRAM = Path(__file__).with_name("programs.py")
LEASE_S = 6


@pytest.mark.parametrize("away", ["checkpoints", "ha/execution-plans"])
def test_a_driver_survives_the_loss_of_its_leader_and_of_its_storage(
    zookeeper_hosts: str, tmp_path: Path, away: str
) -> None:
    managers = JobManagers(tmp_path, zookeeper_hosts, WAYMARK_HEARTBEAT_TIMEOUT=str(LEASE_S))
    managers.start()
    managers.start()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text(json.dumps({"id": 1, "word": "a"}))
    arguments = {"input": str(tmp_path / "in"), "poison": str(tmp_path / "poison"), "output": str(tmp_path / "out")}
    try:
        job = Job(
            managers, PROGRAM, "to_files", arguments, **{"execution.checkpointing.tolerable-failed-checkpoints": "99"}
        )
        completed = eventually("a checkpoint", job.completed_id)
        driver = job.driver()
        storage = managers.state / away
        elsewhere = storage.rename(storage.with_name("elsewhere"))
        if away == "checkpoints":
            eventually("a failed checkpoint", lambda: job.get("/checkpoints")["counts"]["failed"])
            # A driver that was uploading may have created its directories again. They must not pass for the storage.
            assert list(storage.glob("*/taskowned")) == []
        managers.kill_leader()
        eventually("a leader", managers.leader)
        led_since = time.monotonic()
        eventually("twice the lease is over", lambda: time.monotonic() - led_since > 2 * LEASE_S)
        os.kill(driver, 0)
        if away == "checkpoints":
            eventually("it waits", lambda: job.get().get("state") == "RECONCILING")
        else:
            assert "state" not in job.get(), job.exceptions()
        shutil.rmtree(storage, ignore_errors=True)  # files that the killed leader may have created
        elsewhere.rename(storage)

        eventually("it runs", job.is_running)
        eventually("another checkpoint", lambda: job.completed_id() > completed)
        assert job.driver() == driver
        assert job.record()["attempt"] == 1
        job.cancel()
    finally:
        managers.stop()
