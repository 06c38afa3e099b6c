"""Waymark's processes and servers as in production. A test may kill or stop each of them, or fill its disk.

The polled cluster is an HTTP server with Flink's answers (`FakeEngine`), in the test's process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from dashboard.stack.composition import get
from dashboard.stack.ports import several_free
from dashboard.stack.postgres import PostgresServer
from dashboard.stack.process import Server, spawn, stop, wait_until
from dashboard.stack.redis import RedisServer

ROOT = Path(__file__).resolve().parents[3]


class Process:
    """A process that may be started several times. It appends its output to `log`."""

    def __init__(self, argv: tuple[str, ...], environ: dict[str, str], log: Path) -> None:
        self._argv, self._environ, self._log = argv, environ, log
        self._log.touch()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._argv, cwd=ROOT, env=self._environ, stdout=log, stderr=log)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(30)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class ServerProcess:
    """A PostgreSQL or Redis server that keeps its data when it is killed."""

    def __init__(self, server: Server, log: Path) -> None:
        self.server, self._log = server, log
        server.prepare()
        self._command = server.command()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = spawn(self._command, log)
        wait_until(self.server.answers, limit_s=30, what=self.server.name)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)

    def stop(self) -> None:
        stop(self._process, self._command)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None


class Machine:
    """One installation: `postgres` (data on `disk`), `redis`, the web server, and numbered workers and beats."""

    app = "dashboard.stack.celery_app"
    beat_options: tuple[str, ...] = ()

    def __init__(self, directory: Path, disk: Path) -> None:
        self.directory, self.disk = directory, disk
        self._postgres_server = PostgresServer(disk / "pg", socket_directory=directory / "socket")
        redis_port, self.web_port = several_free(2)
        self._redis_server = RedisServer(directory / "redis", redis_port)
        self.postgres = ServerProcess(self._postgres_server, directory / "postgres.log")
        self.redis = ServerProcess(self._redis_server, directory / "redis.log")
        self.processes: dict[str, Process] = {}

    @property
    def dsn(self) -> str:
        return self._postgres_server.dsn()

    @property
    def redis_url(self) -> str:
        return self._redis_server.url

    @property
    def environ(self) -> dict[str, str]:
        return {
            **os.environ,
            "DATABASE_URL": self.dsn,
            "REDIS_URL": self.redis_url,
            "WAYMARK_VAR": str(self.directory / "var"),
            "PYTHONUNBUFFERED": "1",
        }

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, env=self.environ, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def worker(self, number: int = 1) -> Process:
        options = ("worker", "--pool", "threads", "--concurrency", "4", "--without-gossip", "--without-mingle")
        return self._process(f"worker{number}", *options, "--hostname", f"worker{number}@test")

    def beat(self, number: int = 1) -> Process:
        return self._process(f"beat{number}", "beat", "--pidfile", "", *self.beat_options)

    def web(self) -> Process:
        options = ("--port", str(self.web_port), "--threads", "4")
        return self._started_by("web", "manage", "web", *options)

    def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body of the web server's answer, or (0, b"") without an answer."""
        return get(f"http://127.0.0.1:{self.web_port}{path}", limit_s=20)

    def _process(self, name: str, *options: str) -> Process:
        return self._started_by(name, "celery", "-A", self.app, "--quiet", *options)

    def _started_by(self, name: str, module: str, *options: str) -> Process:
        if name not in self.processes:
            argv = (sys.executable, "-m", module, *options)
            self.processes[name] = Process(argv, self.environ, self.directory / f"{name}.log")
        return self.processes[name]

    def rows(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.dsn, row_factory=dict_row, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(sql, parameters or None)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def value(self, sql: str, *parameters: Any) -> Any:
        [row] = self.rows(sql, *parameters)
        return next(iter(row.values()))


@contextmanager
def running(directory: Path, disk: Path, kind: type[Machine] = Machine) -> Iterator[Machine]:
    machine = kind(directory, disk)
    with ExitStack() as left:
        for server in (machine.postgres, machine.redis):
            server.start()
            left.callback(server.stop)
        left.callback(lambda: [process.kill() for process in machine.processes.values() if process.alive])
        yield machine


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[Path]:
    """Yield a new file system of this size, or a plain directory if nothing can be mounted."""
    place.mkdir()
    mount, size = shutil.which("mount"), f"size={megabytes}m"
    made = mount and subprocess.run([mount, "-t", "tmpfs", "-o", size, "tmpfs", str(place)], capture_output=True)
    place.chmod(0o711)
    try:
        yield place
    finally:
        if made and made.returncode == 0:
            subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Fill `disk` completely for the duration of the block."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"0" * size)
    try:
        yield
    finally:
        ballast.unlink()
