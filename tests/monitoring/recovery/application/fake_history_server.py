"""A fake History Server of Flink. Its archives are a recorded one of Flink 2.3.0, changed to be about another job."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.monitoring.engine.answering import sample
from tests.monitoring.fake_job_manager import FakeJobManager

NUMBERS_FROM = 100  # the numbers of the recorded checkpoints are higher by this
NEWEST = "file:/flink/checkpoints/{id}/chk-9"  # the path of the newest completed checkpoint, of the original job
CAUSE = "The switch says fail."
_CONFIG = {"flink-version": "2.3.0", "features": {"web-submit": False, "web-cancel": False, "web-history": True}}


@dataclass
class FakeHistoryServer(FakeJobManager):
    """A server that closes connections without an answer unless it is `up`.

    `served`: the answers by path. `overridden`: statuses and answers in their place. `asked`: the paths of all
    requests. While it `hangs`, it answers no request.
    """

    up: bool = True
    hangs: bool = False
    served: dict[str, Any] = field(default_factory=dict)
    overridden: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any] | None:
        self.asked.append(path)
        if self.hangs:
            self.release.wait(300)
        if self.hangs or not self.up:
            return None
        if path == "/config":
            return 200, _CONFIG
        if path in self.overridden:
            return self.overridden[path]
        return (200, self.served[path]) if path in self.served else (404, {"errors": ["File not found."]})

    def archive(self, job_id: str, name: str, started_at: float, state: str = "FAILED") -> None:
        """Serve the archive of a job. `started_at`: in seconds."""
        recorded, was = _recorded()
        later = round(started_at * 1000) - recorded[f"/jobs/{was}"]["start-time"]
        for path, answer in recorded.items():
            self.served[_path(path).replace(was, job_id)] = _moved(answer, later)
        self.served[f"/jobs/{job_id}"] |= {"jid": job_id, "name": name, "state": state}
        if state != "FAILED":
            self.served[f"/jobs/{job_id}/exceptions"]["exceptionHistory"]["entries"] = []

    def archive_early_end(self, job_id: str, name: str, started_at: float, state: str, error: str) -> None:
        """Serve the archive of a job that ended before its first checkpoint. `error`: its exception if it FAILED."""
        self.archive(job_id, name, started_at, state)
        for path in [path for path in self.served if path.startswith(f"/jobs/{job_id}/checkpoints")]:
            del self.served[path]
        for entry in self.served[f"/jobs/{job_id}/exceptions"]["exceptionHistory"]["entries"]:
            entry |= {"stacktrace": error, "concurrentExceptions": []}


def newest_of_the_archive() -> str:
    return NEWEST.format(id=_recorded()[1])


def _recorded() -> tuple[dict[str, Any], str]:
    """Return the answers of the recorded archive by path, and the ID of its job."""
    entries = sample("archive")["archive"]
    answers = {entry["path"]: json.loads(entry["json"]) for entry in entries}
    (job_id,) = {Path(path).parts[2] for path in answers}
    return answers, job_id


def _path(path: str) -> str:
    before, details, rest = path.partition("/details/")
    number, *more = rest.split("/", 1)
    return "/".join([f"{before}{details}{int(number) + NUMBERS_FROM}", *more]) if details else path


def _moved(value: Any, later: int, key: str = "") -> Any:
    """Return a part of an answer with later times and higher numbers of checkpoints."""
    if isinstance(value, dict):
        return {name: _moved(each, later, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_moved(each, later) for each in value]
    if isinstance(value, int) and value > 1_500_000_000_000:
        return value + later
    return value + NUMBERS_FROM if key == "id" and isinstance(value, int) else value
