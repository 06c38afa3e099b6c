"""A real History Server of Flink, which serves the archives of ended jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dashboard.stack.ports import LOOPBACK, any_free
from tests.monitoring.flink.cluster import FlinkProcess
from tests.urls import read
from tests.waiting import eventually

_MAIN = "org.apache.flink.runtime.webmonitor.history.HistoryServer"


class HistoryServer:
    """A server of the archives in a directory, which it reads every second. It is not started at first."""

    def __init__(self, home: Path, java_home: Path, directory: Path, archive: Path) -> None:
        self.port = any_free()
        self._process = FlinkProcess("history-server", _MAIN, home, java_home, directory, "96m")
        self._process.configure(
            {
                "historyserver.web.address": LOOPBACK,
                "historyserver.web.port": self.port,
                "historyserver.web.tmpdir": str(directory / "served"),
                "historyserver.archive.fs.dir": f"file://{archive}",
                "historyserver.archive.fs.refresh-interval": 1000,
            }
        )

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        self._process.start()
        try:
            eventually("the History Server answers", self._answers)
            yield
        finally:
            self._process.stop()

    def _answers(self) -> bool:
        assert not self._process.ended, self._process.said()
        try:
            found: dict[str, Any] = json.loads(read(f"{self.url}/config", timeout_s=5))
        except OSError:
            return False
        return "features" in found
