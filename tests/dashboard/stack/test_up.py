"""`manage.py up` starts and stops the whole product."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from dashboard.demo.jobs import DEMO_JOBS
from dashboard.management.commands.status import parts_now
from dashboard.stack.composition import get
from dashboard.stack.process import descendants, wait_until
from dashboard.stack.record import PartRecord, start_time
from tests.other_account import can_open

pytestmark = [pytest.mark.stack, pytest.mark.zookeeper]
ROOT = Path(__file__).resolve().parents[3]
PARTS = ["postgres", "redis", "zookeeper", "jobmanager", "worker", "beat", "web"]
_JOBS_WITH_A_CHECKPOINT = """
SELECT DISTINCT job.name FROM monitoring_job job
JOIN monitoring_run run ON run.job_id = job.id JOIN monitoring_checkpoint seen ON seen.run_id = run.id
WHERE seen.status = 'COMPLETED'
"""


class Product:
    """A `manage.py up` with a separate directory, and the pids of all processes that it has started."""

    def __init__(self, var: Path) -> None:
        self.var = var
        self.environ = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "JAVA_HOME")}
        self.environ["WAYMARK_VAR"] = str(var)
        self.environ["WAYMARK_HISTORY_PIPELINE"] = "off"
        self.pids: set[int] = set()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        with (self.var.parent / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", *options], cwd=ROOT, env=self.environ, stdout=log, stderr=log
            )
        wait_until(self.is_up, limit_s=240, what="all parts up")
        self.pids |= {part.pid for part in self.parts().values() if part.pid} | {self.process.pid}

    def is_up(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            pytest.fail(f"up ended with {self.process.returncode}:\n{(self.var.parent / 'up.log').read_text()[-4000:]}")
        return all(part.state == "up" for part in self.parts().values())

    def parts(self) -> dict[str, PartRecord]:
        """Return the parts that `manage.py status` lists, without a new process, which takes two seconds."""
        return {part.name: part for part in parts_now(self.environ)}

    def status(self) -> dict[str, Any]:
        parts = json.loads(self.manage("status", "--json").stdout)["parts"]
        return {part["name"]: part for part in parts}

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, env=self.environ, capture_output=True, text=True
        )

    def stop(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(240)

    def living(self) -> list[int]:
        """Return the live processes among those seen, and all whose working directory is below `var`, as of drivers."""
        found = [process.pid for process in psutil.process_iter(["cwd"]) if self._is_below(process.info["cwd"])]
        return [pid for pid in [*self.pids, *found] if start_time(pid) is not None]

    def _is_below(self, working_directory: str | None) -> bool:
        return working_directory is not None and Path(working_directory).is_relative_to(self.var)


@pytest.fixture
def product(session_directory: Path, tmp_path: Path) -> Iterator[Product]:
    # A short path that PostgreSQL's account can reach: pytest's directories are private.
    made = Product(session_directory / tmp_path.name / "var")
    made.var.parent.mkdir()
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


@pytest.mark.timeout(900)
def test_stack_starts_recovers_stops_and_continues(product: Product) -> None:
    product.start()
    status = product.status()
    assert list(status)[: len(PARTS)] == PARTS
    assert all(part["pid"] and part["version"] for part in status.values())
    assert get(f"{status['web']['address']}/healthz", 60.0)[0] == 200
    expect_closed_to_other_accounts(product, status)

    refused = product.manage("up")
    assert refused.returncode != 0
    assert product.process is not None
    assert f"already running on {product.var} (pid {product.process.pid})" in refused.stderr

    os.kill(status["redis"]["pid"], signal.SIGKILL)
    wait_until(lambda: product.parts()["redis"].restarts == 1 and product.is_up(), limit_s=240, what="redis again")
    product.pids |= {part.pid for part in product.parts().values() if part.pid}

    with psycopg.connect(database_of(product)) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
    assert product.stop(signal.SIGINT) == 0
    assert product.living() == []
    assert {part.state for part in product.parts().values()} == {"down"}

    product.environ["WAYMARK_JOBMANAGER_TOKEN"] = "chosen"
    product.start("--demo")
    assert product.parts()["web"].address == status["web"]["address"]
    assert answers(status["jobmanager"], "chosen") == 200
    with psycopg.connect(database_of(product)) as connection:
        assert connection.execute("SELECT value FROM kept").fetchone() == (7,)
    demo = {job.name for job in DEMO_JOBS}
    wait_until(lambda: jobs_with_a_checkpoint(product) == demo, limit_s=300, what="a checkpoint of each demo job")
    product.pids |= set(descendants(product.process.pid))  # include the drivers and their JVMs

    # If the supervisor is killed, nothing stops its parts: they must end by themselves.
    assert product.stop(signal.SIGKILL) == -signal.SIGKILL
    wait_until(lambda: product.living() == [], limit_s=120, what="the end of every part")


def expect_closed_to_other_accounts(product: Product, status: dict[str, Any]) -> None:
    password = (product.var / "admin-password").read_text().strip()
    for log in (product.var.parent / "up.log", product.var / "log" / "waymark.log"):
        assert password not in log.read_text()
    assert stat.S_IMODE((product.var / "log" / "waymark.log").stat().st_mode) == 0o600
    if os.geteuid() == 0:
        assert can_open(product.var.rglob("*")) == []
    token = (product.var / "jobmanager-token").read_text()
    assert (answers(status["jobmanager"], ""), answers(status["jobmanager"], token)) == (401, 200)
    wait_until(lambda: embedded_cluster_is_polled(product), limit_s=240, what="a poll of the embedded cluster")


def answers(job_manager: dict[str, Any], token: str) -> int:
    return get(f"{job_manager['address']}/overview", 60.0, token=token)[0]


def embedded_cluster_is_polled(product: Product) -> bool:
    with psycopg.connect(database_of(product)) as connection:
        query = "SELECT last_answer_at IS NOT NULL AND last_error = '' FROM monitoring_cluster"
        return connection.execute(query).fetchall() == [(True,)]


def jobs_with_a_checkpoint(product: Product) -> set[str]:
    with psycopg.connect(database_of(product)) as connection:
        return {name for (name,) in connection.execute(_JOBS_WITH_A_CHECKPOINT)}


def database_of(product: Product) -> str:
    return str(json.loads((product.var / "run" / "environment.json").read_text())["DATABASE_URL"])


def test_invalid_java_home_is_reported_before_the_start(product: Product) -> None:
    product.environ["JAVA_HOME"] = "/nowhere"
    refused = product.manage("up")
    assert refused.returncode != 0
    assert "JAVA_HOME=/nowhere has no bin/java that starts" in refused.stderr
    assert product.parts()["postgres"].state == "down"


INTERRUPTED_IMPORT = """
import runpy, signal, sys, weakref

class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == interrupted:
            weakref.finalize(Interrupt(), signal.raise_signal, signal.SIGINT)

interrupted = sys.argv[1]
sys.argv = ["manage.py", "up"]
sys.meta_path.insert(0, Interrupt())
runpy.run_path("manage.py", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["django", "dashboard.logs", "dashboard.stack.start"])
def test_ctrl_c_during_import_prints_no_traceback(product: Product, module: str) -> None:
    """The signal arrives in a finalizer, because Python prints an exception of a finalizer and continues.

    Imports run such finalizers.
    """
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, module]
    ended = subprocess.run(command, cwd=ROOT, env=product.environ, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, "Traceback" in ended.stderr) == (130, False)
