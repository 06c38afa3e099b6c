"""One installation that polls an engine. Each test causes a fault and checks that the installation recovers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pytest_httpserver import HTTPServer

from tests.monitoring.faults.machine import Machine, running, small_disk
from tests.monitoring.polling.conftest import FakeEngine, FakeJob
from tests.waiting import eventually

_ROWS = """
SELECT checkpoint_id, status, final, round(extract(epoch FROM triggered_at) * 1000)::bigint AS triggered,
       (SELECT count(*) FROM monitoring_operatorcheckpoint WHERE checkpoint_id = c.id) AS operators
FROM monitoring_checkpoint c ORDER BY checkpoint_id
"""


@dataclass
class Watch:
    """An engine and its rows: checks whether the rows equal the engine's checkpoints."""

    machine: Machine
    engine: FakeEngine
    job: FakeJob

    def grow(self, count: int = 3) -> None:
        newest = self.job.checkpoints[-1].id if self.job.checkpoints else 0
        self.job.add(*range(newest + 1, newest + 1 + count))

    def has_all(self) -> bool:
        wanted = [(one.id, one.status, True, one.triggered, 2) for one in self.job.checkpoints]
        return [tuple(row.values()) for row in self.machine.rows(_ROWS)] == wanted

    def caught_up(self) -> None:
        """Wait until each checkpoint of the engine has one complete row. Assert that no gap or second run exists."""
        eventually("every checkpoint is a row", self.has_all)
        assert self.machine.value("SELECT count(*) FROM monitoring_checkpointgap") == 0
        assert self.machine.rows("SELECT number, state FROM monitoring_run") == [{"number": 1, "state": "RUNNING"}]

    def grows_and_is_seen(self) -> None:
        self.grow()
        self.caught_up()


@pytest.fixture(scope="module")
def machine(session_directory: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    directory = session_directory / "faults"
    directory.mkdir(mode=0o711)
    with small_disk(directory / "disk", 600) as disk, running(directory, disk) as machine:
        for process in (machine.worker(), machine.beat(1), machine.beat(2), machine.web()):
            process.start()
        machine.manage("migrate", "--verbosity", "0")
        yield machine
        if request.session.testsfailed:
            kept = Path("var/test/faults")
            kept.mkdir(parents=True, exist_ok=True)
            for log in directory.glob("*.log"):
                shutil.copy(log, kept)


@pytest.fixture(scope="module")
def watch(machine: Machine) -> Iterator[Watch]:
    server = HTTPServer(host="127.0.0.1", threaded=True)
    server.start()  # type: ignore[no-untyped-call]
    engine = FakeEngine(server)
    watch = Watch(machine, engine, engine.job(kept=1_000_000))
    machine.manage("cluster", "add", "east", engine.url)
    machine.rows("UPDATE monitoring_cluster SET poll_interval_s = 1")
    watch.grows_and_is_seen()
    yield watch
    server.stop()  # type: ignore[no-untyped-call]


@pytest.fixture
def quiet(watch: Watch) -> Iterator[dict[str, Any]]:
    """Yield the output of each process during the test. Afterwards assert that no process has ended by itself."""
    processes = watch.machine.processes
    before = {name: len(process.said) for name, process in processes.items()}
    text: dict[str, Any] = {}
    text["since"] = lambda name: processes[name].said[before.get(name, 0) :]
    yield text
    ended = {name: process for name, process in processes.items() if not process.alive}
    for process in ended.values():
        process.start()  # for the next tests
    assert not ended, "\n".join(f"{name} ended:\n{process.said[-3000:]}" for name, process in ended.items())
