# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""Jobs that end by themselves, run one after the other by a real job manager with real drivers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.checkpointing.jobs.running_job_manager import RunningJobManager
from tests.checkpointing.jobs.running_job_manager import eventually as soon
from tests.checkpointing.spark.conftest import PROGRAMS

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]

LIMIT_S = 180.0


class Runs:
    """Runs of one program over one input. Each run starts from the previous run's final savepoint."""

    def __init__(self, manager: RunningJobManager, function: str, arguments: dict[str, str]) -> None:
        self.manager = manager
        self.function = function
        self.input = manager.directory / "input"
        self.input.mkdir(exist_ok=True)
        self.arguments = {"input": str(self.input), **arguments}
        self.savepoint: str | None = None

    def feed(self, first: int, count: int) -> None:
        file = self.input / f"from-{first}.txt"
        file.with_suffix(".part").write_text("".join(f"row {number}\n" for number in range(first, first + count)))
        file.with_suffix(".part").rename(file)

    async def start(self, configuration: dict[str, str] | None = None) -> str:
        source = (PROGRAMS / "that_end.py").read_text()
        jar_id = await self.manager.upload(source, "that_end.py")
        body = {
            "entryClass": f"that_end.py:{self.function}",
            "programArgsList": [part for name, value in self.arguments.items() for part in (f"--{name}", value)],
            "flinkConfiguration": {"spark.ui.enabled": "false", **(configuration or {})},
            **({"savepointPath": self.savepoint} if self.savepoint else {}),
        }
        return str((await self.manager.post(f"/jars/{jar_id}/run", body))["jobid"])

    async def finish(self, job_id: str) -> dict[str, Any]:
        """Wait until the job is FINISHED, and return its details."""

        async def finished() -> dict[str, Any] | None:
            details = await self.manager.get(f"/jobs/{job_id}")
            assert details["state"] not in ("FAILED", "CANCELED"), await self.manager.get(f"/jobs/{job_id}/exceptions")
            return details if details["state"] == "FINISHED" else None

        details = dict(await soon(finished, LIMIT_S))
        driver = Path("/proc", str(details["attempts"][0]["pid"]))
        await soon(lambda: not driver.exists(), LIMIT_S)  # the job manager has reaped it
        self.savepoint = details["ended-by-itself"]["state-path"]
        return details

    async def run(self) -> dict[str, Any]:
        return await self.finish(await self.start())


def json_rows(directory: Path) -> Callable[[], list[str]]:
    """Return a function that reads the rows in a directory of Waymark's FileSink."""

    def read() -> list[str]:
        files = sorted(directory.glob("waymark_batch=*/*.json"))
        return sorted(line for file in files for line in file.read_text().splitlines())

    return read


def rows(count: int) -> list[str]:
    return sorted(f'{{"value":"row {number}"}}' for number in range(count))


async def test_a_second_run_continues_where_the_first_ended(manager: RunningJobManager, tmp_path: Path) -> None:
    """Formerly, FileSink refused the second run, because it did not start from a state of the first."""
    runs, read = Runs(manager, "files", {"output": str(tmp_path / "out")}), json_rows(tmp_path / "out")
    runs.feed(0, 50)
    runs.feed(50, 50)

    first = await runs.run()
    assert read() == rows(100)
    assert first["queries"][0]["batches"] == 2
    assert next(v for v in first["vertices"] if v["kind"] == "source")["metrics"]["write-records"] == 100
    runs.feed(100, 50)
    second = await runs.run()
    assert read() == rows(150)
    assert second["queries"][0]["batches"] == 1


async def test_a_run_without_new_input_keeps_the_state_that_it_started_from(
    manager: RunningJobManager, tmp_path: Path
) -> None:
    runs, read = Runs(manager, "files", {"output": str(tmp_path / "out")}), json_rows(tmp_path / "out")
    runs.feed(0, 100)
    await runs.run()
    newest = runs.savepoint

    second = await runs.run()

    assert read() == rows(100)
    assert second["ended-by-itself"] == {"is-saved": True, "final-savepoint": None, "state-path": newest}


async def test_a_second_run_writes_each_row_once_through_sparks_file_sink(
    manager: RunningJobManager, tmp_path: Path
) -> None:
    """Formerly, the second run lost 50 of 150 rows, because the sink skips batch numbers that it knows."""
    runs, output = Runs(manager, "spark_files", {"output": str(tmp_path / "out")}), tmp_path / "out"

    def read() -> list[str]:
        return sorted(line for file in output.glob("*.json") for line in file.read_text().splitlines())

    runs.feed(0, 100)
    await runs.run()
    assert read() == rows(100)
    runs.feed(100, 50)
    await runs.run()
    assert read() == rows(150)


async def test_a_second_run_appends_each_row_once_to_a_table(manager: RunningJobManager, postgres_dsn: str) -> None:
    """Formerly, the second run wrote 100 rows a second time."""
    runs = Runs(manager, "table", {"dsn": postgres_dsn, "table": "rows_of_runs"})

    def read() -> list[str]:
        with psycopg.connect(postgres_dsn) as connection:
            found = connection.execute("SELECT value FROM rows_of_runs").fetchall()
        return sorted(f'{{"value":"{value}"}}' for (value,) in found)

    runs.feed(0, 100)
    await runs.run()
    assert read() == rows(100)
    runs.feed(100, 50)
    await runs.run()
    assert read() == rows(150)


async def test_a_job_with_the_once_trigger_continues_where_it_ended(manager: RunningJobManager, tmp_path: Path) -> None:
    runs, read = Runs(manager, "once", {"output": str(tmp_path / "out")}), json_rows(tmp_path / "out")
    runs.feed(0, 100)
    await runs.run()
    runs.feed(100, 50)
    await runs.run()
    assert read() == rows(150)


async def test_a_first_run_without_input_can_be_followed_by_one_with(
    manager: RunningJobManager, tmp_path: Path
) -> None:
    runs, read = Runs(manager, "files", {"output": str(tmp_path / "out")}), json_rows(tmp_path / "out")

    first = await runs.run()
    assert first["ended-by-itself"] == {"is-saved": True, "final-savepoint": None, "state-path": None}
    runs.feed(0, 100)
    await runs.run()

    assert read() == rows(100)
    assert runs.savepoint is not None


async def test_a_driver_killed_between_its_last_batch_and_its_savepoint_loses_and_doubles_nothing(
    manager: RunningJobManager, tmp_path: Path
) -> None:
    """The savepoint cannot be written until the driver has been killed."""
    runs, read = Runs(manager, "files", {"output": str(tmp_path / "out")}), json_rows(tmp_path / "out")
    savepoints = Path(manager.settings.savepoint_directory)
    savepoints.write_text("a file where the directory should be")
    runs.feed(0, 100)
    restart = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}
    job_id = await runs.start({**restart, "execution.checkpointing.dir": f"file://{savepoints}"})

    async def is_saving() -> list[Any]:
        answer = await manager.get(f"/jobs/{job_id}/exceptions")
        return list(answer["exceptionHistory"]["entries"])

    await soon(is_saving, LIMIT_S)
    details = await manager.get(f"/jobs/{job_id}")
    os.kill(details["attempts"][0]["pid"], signal.SIGKILL)
    savepoints.unlink()

    details = await runs.finish(job_id)

    assert len(details["attempts"]) == 2
    assert read() == rows(100)
    runs.feed(100, 50)
    await runs.run()
    assert read() == rows(150)
