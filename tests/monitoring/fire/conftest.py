"""An installation in which each tick is sent four times, to two workers that may be killed at any moment."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.monitoring.faults.machine import Machine, running
from tests.monitoring.fire.engine import PlayedCluster
from tests.monitoring.fire.world import LAUNCH

CLUSTERS = "from monitoring.models import Cluster; [Cluster.objects.create(**each) for each in {rows!r}]"


class HastyMachine(Machine):
    app = "tests.monitoring.fire.hasty"
    beat_options = ("--scheduler", "tests.monitoring.fire.hasty:Twice")

    @property
    def environ(self) -> dict[str, str]:
        return super().environ | {"WAYMARK_LOG_LEVEL": "INFO"}

    def watch(self, engines: dict[str, PlayedCluster], **values: object) -> None:
        rows = [{"name": name, "rest_url": each.url, "poll_interval_s": 1, **values} for name, each in engines.items()]
        self.manage("shell", "-c", CLUSTERS.format(rows=rows))

    def jobs_are_known(self, cluster: str) -> int:
        return int(self.value(_KNOWN, f"{cluster}%"))

    def automate(self, cluster: str) -> None:
        self.rows(_AUTOMATE, json.dumps(LAUNCH), f"{cluster}%")


_KNOWN = """
SELECT count(*) FROM monitoring_job j JOIN monitoring_cluster c ON c.id = j.cluster_id
JOIN monitoring_run r ON r.id = j.current_run_id WHERE c.name LIKE %s AND r.state = 'RUNNING'
"""
_AUTOMATE = """
UPDATE monitoring_job SET auto_restart = true, launch = %s, max_restarts_per_hour = 1000, max_restarts_per_day = 1000
FROM monitoring_cluster c WHERE c.id = cluster_id AND c.name LIKE %s
"""


@pytest.fixture(scope="module")
def machine(session_directory: Path, request: pytest.FixtureRequest) -> Iterator[HastyMachine]:
    directory = session_directory / "fire"
    disk = directory / "disk"
    disk.mkdir(parents=True, mode=0o711)
    with running(directory, disk, HastyMachine) as machine:
        assert isinstance(machine, HastyMachine)
        machine.manage("migrate", "--verbosity", "0")
        for process in (machine.worker(1), machine.worker(2), machine.beat(1), machine.beat(2)):
            process.start()
        yield machine
        if request.session.testsfailed:
            kept = Path("var/test/fire")
            kept.mkdir(parents=True, exist_ok=True)
            for log in directory.glob("*.log"):
                shutil.copy(log, kept)
