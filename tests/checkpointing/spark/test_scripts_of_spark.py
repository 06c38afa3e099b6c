"""Spark's unmodified examples, submitted as jobs: they run, are stopped with a savepoint, and run again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.chaos.cluster import ROOT, JobManagers
from tests.checkpointing.spark.test_driver_scripts import copies
from tests.talker import talker
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.stack, pytest.mark.spark, pytest.mark.timeout(900)]

EXAMPLES = Path(pyspark.__file__).parent / "examples/src/main/python/sql/streaming"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with talker() as port:
        yield port


def submitted(managers: JobManagers, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "manage.py", "submit", "--jobmanager", managers.client()._address, *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)


def submit(managers: JobManagers, *arguments: str) -> str:
    """Submit a job with `manage.py submit`, and return its ID once it runs."""
    text = submitted(managers, *arguments)
    assert text.returncode == 0, text.stdout + text.stderr
    return text.stdout.partition("Submitted: job ")[2].split()[0]


def completed(managers: JobManagers, job: str) -> int:
    return int(managers.client().get(f"/jobs/{job}/checkpoints")["counts"]["completed"])


def stopped_with_savepoint(managers: JobManagers, job: str) -> str:
    trigger = managers.client().post(f"/jobs/{job}/stop", {})["request-id"]

    def location() -> str | None:
        operation: dict[str, Any] | None = managers.client().get(f"/jobs/{job}/savepoints/{trigger}")["operation"]
        assert operation is None or "location" in operation, operation
        return None if operation is None else str(operation["location"])

    return str(eventually("the savepoint", location))


@pytest.mark.parametrize(
    "example",
    [
        "structured_network_wordcount.py",
        "structured_network_wordcount_windowed.py",
        "structured_network_wordcount_session_window.py",
    ],
)
def test_an_example_runs_is_saved_and_restarts(job_managers: JobManagers, port: int, example: str) -> None:
    given = ["127.0.0.1", str(port)]
    if "windowed" in example:
        given += ["4", "2"]
    conf = ("--conf", "execution.checkpointing.interval=500ms", "--conf", "spark.sql.shuffle.partitions=1")
    job = submit(job_managers, str(EXAMPLES / example), *conf, "--", *given)
    eventually("checkpoints", lambda: completed(job_managers, job) > 1)
    savepoint = stopped_with_savepoint(job_managers, job)

    again = submit(job_managers, str(EXAMPLES / example), *conf, "--from-savepoint", savepoint, "--", *given)
    eventually("checkpoints after the restart", lambda: completed(job_managers, again) > 1)
    job_managers.client().cancel(again)


def test_a_script_moves_here_with_its_state(job_managers: JobManagers, words: Any, java_home: Path) -> None:
    """The script first runs with spark-submit. Then it becomes a job with the state of its two queries."""
    script, root = Path(__file__).parent / "programs" / "script.py", words.output / "checkpoints"
    given = [str(words.input), str(words.output)]
    words.write("1", ["a", "b", "a"])
    words.write("2", ["c"])
    plain = [Path(sys.executable).with_name("spark-submit"), "--master", "local[2]"]
    locations = ("--conf", f"spark.sql.streaming.checkpointLocation={root}")
    subprocess.run(
        [*plain, *locations, "--conf", "spark.sql.shuffle.partitions=2", script, *given, "once"],
        env={**os.environ, "JAVA_HOME": str(java_home), "PYSPARK_PYTHON": sys.executable},
        check=True,
    )
    assert words.counts() == copies(words) == {"a": 2, "b": 1, "c": 1}

    refused = submitted(job_managers, str(script), *locations, "--", *given)
    assert refused.returncode == 1
    assert f"--from-checkpoint words={root}/words" in refused.stderr

    moved = [f"--from-checkpoint={name}={root}/{name}" for name in ("words", "copies")]
    conf = ("--conf", "execution.checkpointing.interval=500ms")
    job = submit(job_managers, str(script), *locations, *conf, *moved, "--", *given)
    words.write("3", ["a"])
    expected = {"a": 3, "b": 1, "c": 1}
    eventually("every word once", lambda: words.counts() == expected and copies(words) == expected)
    job_managers.client().cancel(job)
