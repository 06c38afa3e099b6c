"""Programs of others: each runs in its own process and Python, and knows only the agent of Waymark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.agent.sessions import AGENT
from tests.pyspark_environments import python_with_pyspark_or_skip

PROGRAMS = Path(__file__).parent / "programs"
INSTALLED = version("pyspark")
# The newest releases of the oldest and of the next versions that are watched, and the one that Waymark installs.
VERSIONS = ("3.5.9", "4.0.5", INSTALLED)
SHAPES = str(PROGRAMS / "shapes.py")
_KEPT = ("PATH", "JAVA_HOME", "JDK_JAVA_OPTIONS", "LANG", "TMPDIR")
Json = dict[str, Any]


def python_of(pyspark: str) -> str:
    """Return a Python with this PySpark. Skip the test if there is none."""
    return sys.executable if pyspark == INSTALLED else str(python_with_pyspark_or_skip(pyspark))


def example(pyspark: str, name: str) -> str:
    """Return the path of one of Spark's own examples, as this version has it."""
    libraries = Path(python_of(pyspark)).parents[1] / "lib"
    (path,) = libraries.glob(f"python3*/site-packages/pyspark/examples/src/main/python/sql/streaming/{name}.py")
    return str(path)


@dataclass(frozen=True)
class Query:
    """What Spark itself has reported about a query that has ended."""

    started: Json
    progress: list[Json]
    ended: Json

    @property
    def name(self) -> str:
        return str(self.started["name"] or self.id[:8])

    @property
    def id(self) -> str:
        """As 32 hexadecimal digits."""
        return UUID(self.started["id"]).hex

    @property
    def run_id(self) -> str:
        return UUID(self.started["runId"]).hex


@dataclass
class Place:
    """The directories of the programs of a test. They are Spark's defaults, so a program names none of them."""

    root: Path
    settings: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def create(self) -> None:
        for path in (self.checkpoints, self.logs, self.root / "conf"):
            path.mkdir(parents=True, exist_ok=True)
        defaults = {
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            # If stop() interrupts a foreachBatch, Spark searches the error, a long text, with a recursive regular
            # expression. With the default stack the query's thread can die of it, and the query never ends.
            "spark.driver.extraJavaOptions": "-Xss64m",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.checkpointLocation": str(self.checkpoints),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.logs.as_uri(),
            **self.settings,
        }
        lines = "".join(f"{name} {value}\n" for name, value in defaults.items())
        (self.root / "conf" / "spark-defaults.conf").write_text(lines)

    def reports(self, kind: str = "progress", name: str | None = None) -> list[Json]:
        """Return what Spark itself has reported until now. Raise Failed if the program has ended with an error."""
        if self.process is not None and self.process.poll():
            raise Failed((self.root / "program.log").read_text()[-3000:])
        path = self.root / "progress.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [each for each in found if each["kind"] == kind and name in (None, each.get("name"))]

    def queries(self) -> list[Query]:
        """Return the queries, all of which have ended."""
        ended = {each["runId"]: each for each in self.reports("terminated")}
        progress = self.reports()
        return [
            Query(each, [own for own in progress if own["runId"] == each["runId"]], ended[each["runId"]])
            for each in self.reports("started")
        ]


class Failed(AssertionError):
    """The program ended with an error."""


@contextmanager
def foreign(place: Place, pyspark: str, *command: str, waymark: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a program during the block. Then stop its queries, and wait until it has ended.

    Args:
        command: the path of the program, and its arguments.
        waymark: WAYMARK_URL and WAYMARK_TOKEN. The agent is attached if they are given.
    """
    place.create()
    python = python_of(pyspark)
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {"HOME": str(place.root), "SPARK_CONF_DIR": str(place.root / "conf"), "PYSPARK_PYTHON": python}
    environment |= {"PYTHONPATH": str(AGENT.parent), **(waymark or {})}
    with (
        (place.root / "program.log").open("ab") as log,
        subprocess.Popen(
            [python, str(PROGRAMS / "runner.py"), str(place.root), *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=place.root,
            env=environment,
            start_new_session=True,
        ) as place.process,
    ):
        try:
            yield
            place.process.communicate(b"\n")
            place.reports()
        finally:
            with suppress(ProcessLookupError):  # the JVM may still run
                os.killpg(place.process.pid, signal.SIGKILL)
