"""A fake engine to poll: a real HTTP server with Flink's answers and failure switches."""

from __future__ import annotations

import itertools
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection
from monitoring.models import Cluster
from monitoring.polling import observe
from monitoring.polling.poller import Poller
from tests.monitoring.newest_completed import outdated

START = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
SOURCE, COUNT = "6bf01baa9d2ca23a3ef7ce311722523d", "f3972bd41bae29c99f67c3c4998870ba"
VERTICES = {SOURCE: "Source: gen", COUNT: "count -> Sink: Writer"}
PARALLELISM = 2


@pytest.fixture(autouse=True)
def newest_completed_is_current(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check after each test that polls stored the newest completed checkpoint of every run."""
    stores = {"db", "transactional_db"} & set(request.fixturenames)
    for name in stores:
        request.getfixturevalue(name)
    yield
    if stores:
        assert outdated() == []


@dataclass
class FakeCheckpoint:
    id: int
    status: str = "COMPLETED"
    triggered: int = START_MS
    is_savepoint: bool = False
    path: str = ""
    discarded: bool = False
    forgotten: bool = False  # details and subtasks are no longer available
    subtasks_forgotten: bool = False
    acknowledged_late: bool = False  # all subtasks acknowledge it after it failed

    def stats(self, job: FakeJob) -> dict[str, Any]:
        done = self.status == "COMPLETED"
        answer = {
            "className": self.status.lower(),
            "id": self.id,
            "status": self.status,
            "is_savepoint": self.is_savepoint,
            "savepointFormat": "CANONICAL" if self.is_savepoint else None,
            "trigger_timestamp": self.triggered,
            "latest_ack_timestamp": self.triggered + 84 if done else -1,
            "checkpointed_size": 19540 if done else 0,
            "state_size": 40000 if done else 0,
            "end_to_end_duration": 84 if done else -1,
            "alignment_buffered": 0,
            "processed_data": 42,
            "persisted_data": 0,
            "num_subtasks": len(VERTICES) * PARALLELISM,
            "num_acknowledged_subtasks": len(VERTICES) * PARALLELISM if done or self.acknowledged_late else 1,
            "checkpoint_type": "SAVEPOINT" if self.is_savepoint else "CHECKPOINT",
            "tasks": {},
        }
        if done:
            answer |= {"external_path": self.path or f"file:/cp/{job.id}/chk-{self.id}", "discarded": self.discarded}
        if self.status == "FAILED":
            answer |= {
                "failure_timestamp": self.triggered + 600,
                "failure_message": "Checkpoint expired before completing.",
            }
        return answer

    def task(self) -> dict[str, Any]:
        done = self.status == "COMPLETED" or self.acknowledged_late
        return {
            "id": self.id,
            "status": self.status,
            "latest_ack_timestamp": self.triggered + 84,
            "checkpointed_size": 9770,
            "state_size": 20000,
            "end_to_end_duration": 84,
            "alignment_buffered": 0,
            "processed_data": 21,
            "persisted_data": 0,
            "num_subtasks": PARALLELISM,
            "num_acknowledged_subtasks": PARALLELISM if done else 1,
        }

    def subtasks(self) -> dict[str, Any]:
        acknowledged = PARALLELISM if self.status == "COMPLETED" or self.acknowledged_late else 1
        listed = [
            {
                "className": "completed",
                "index": index,
                "status": "completed",
                "ack_timestamp": self.triggered + 80 + index,
                "end_to_end_duration": 80 + index,
                "checkpointed_size": 4885,
                "state_size": 10000,
                "checkpoint": {"sync": 3 + index, "async": 7 + index},
                "alignment": {"buffered": 0, "processed": 10, "persisted": 0, "duration": 11 + index},
                "start_delay": 30 + index,
                "unaligned_checkpoint": False,
                "aborted": False,
            }
            for index in range(acknowledged)
        ]
        listed += [
            {"className": "pending", "index": index, "status": "pending_or_failed"}
            for index in range(acknowledged, PARALLELISM)
        ]
        return {**self.task(), "summary": {}, "subtasks": listed}


@dataclass
class FakeJob:
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    name: str = "demo-job"
    state: str = "RUNNING"
    started: int = START_MS
    ended: int = -1
    interval: int = 2000
    checkpoints: list[FakeCheckpoint] = field(default_factory=list)  # oldest first
    kept: int = 10
    counted_before: int = 0  # checkpoints that are counted, but no longer in the history
    restored: dict[str, Any] | None = None
    moved: int | None = None
    exceptions: list[dict[str, Any]] = field(default_factory=list)
    launch: dict[str, Any] | None = None
    checkpointing: bool = True
    imported: list[str] = field(default_factory=list)

    def history(self) -> list[FakeCheckpoint]:
        return self.checkpoints[::-1][: self.kept]

    def add(self, *ids: int, **values: Any) -> FakeCheckpoint:
        for one in ids:
            self.checkpoints.append(FakeCheckpoint(one, **{"triggered": START_MS + one * 2000, **values}))
        return self.checkpoints[-1]

    def overview(self) -> dict[str, Any]:
        return {
            "jid": self.id,
            "name": self.name,
            "start-time": self.started,
            "end-time": self.ended,
            "duration": 1,
            "state": self.state,
            "last-modification": self.moved or self.started,
            "tasks": {"running": 4, "total": 4},
        }

    def answer(self, rest: str) -> Any:
        match rest.split("/"):
            case [""]:
                vertices = [
                    {"id": key, "name": name, "parallelism": PARALLELISM, "status": "RUNNING"}
                    for key, name in VERTICES.items()
                ]
                nodes = [{"id": SOURCE}, {"id": COUNT, "inputs": [{"num": 0, "id": SOURCE}]}]
                return {**self.overview(), "vertices": vertices, "plan": {"nodes": nodes}}
            case ["config"]:
                config = {"jid": self.id, "name": self.name, "execution-config": {}}
                config |= {"launch": self.launch} if self.launch else {}
                return config | ({"imported-queries": self.imported} if self.imported else {})
            case ["exceptions"]:
                return {"exceptionHistory": {"entries": self.exceptions, "truncated": False}}
            case ["checkpoints", *more]:
                return self.checkpoint_answer(more) if self.checkpointing else None
        return None

    def checkpoint_answer(self, path: list[str]) -> Any:
        match path:
            case []:
                return self.checkpoints_answer()
            case ["config"]:
                return {
                    "mode": "exactly_once",
                    "interval": self.interval,
                    "timeout": 600000,
                    "min_pause": 0,
                    "max_concurrent": 1,
                    "externalization": {"enabled": True, "delete_on_cancellation": False},
                    "tolerable_failed_checkpoints": 0,
                }
            case ["details", one, *more]:
                found = next((each for each in self.history() if each.id == int(one) and not each.forgotten), None)
                if found is None:
                    return None
                if more:
                    return None if found.subtasks_forgotten else found.subtasks()
                return {**found.stats(self), "tasks": {key: found.task() for key in VERTICES}}
        return None

    def checkpoints_answer(self) -> dict[str, Any]:
        counted = {"COMPLETED": 0, "FAILED": 0, "IN_PROGRESS": 0}
        for each in self.checkpoints:
            counted[each.status] += 1
        newest = {
            "completed": [one for one in self.checkpoints if one.status == "COMPLETED" and not one.is_savepoint],
            "savepoint": [one for one in self.checkpoints if one.status == "COMPLETED" and one.is_savepoint],
            "failed": [one for one in self.checkpoints if one.status == "FAILED"],
        }
        latest = {kind: (found[-1].stats(self) if found else None) for kind, found in newest.items()}
        figure = {"min": 1, "max": 2, "avg": 1, "p50": "NaN", "p90": 2.0}
        return {
            "counts": {
                "restored": 1 if self.restored else 0,
                "total": len(self.checkpoints) + self.counted_before,
                "in_progress": counted["IN_PROGRESS"],
                "completed": counted["COMPLETED"] + self.counted_before,
                "failed": counted["FAILED"],
            },
            "summary": {"state_size": figure, "end_to_end_duration": figure},
            "latest": {**latest, "restored": self.restored},
            "history": [each.stats(self) for each in self.history()],
        }


class FakeEngine:
    """A fake Flink with the failure switches `hang`, `cut_short`, `down_with`, `refused` and `instead`."""

    def __init__(self, server: HTTPServer) -> None:
        self.jobs: list[FakeJob] = []
        self.asked: list[str] = []
        self.hang: str = ""  # a pattern of paths that never answer
        self.cut_short = False
        self.down_with: tuple[int, str] | None = None
        self.refused: dict[str, tuple[int, str]] = {}  # path -> status and message
        self.instead: dict[str, Any] = {}  # pattern of a path -> another answer
        self.released = threading.Event()
        self.version = "2.3.0"
        self.url = server.url_for("/").rstrip("/")
        server.expect_request(re.compile(".*")).respond_with_handler(self.respond)

    def job(self, **values: Any) -> FakeJob:
        self.jobs.append(FakeJob(**values))
        return self.jobs[-1]

    def respond(self, request: Request) -> Response:
        path = request.path
        self.asked.append(path)
        if self.hang and re.fullmatch(self.hang, path):
            self.released.wait(30)
        refusal = self.down_with or self.refused.get(path)
        if refusal is not None:
            return Response(json.dumps({"errors": [refusal[1]]}), refusal[0])
        if self.cut_short:
            return Response(b'{"jobs": [', headers={"Content-Length": "1000"})
        for pattern, answer in self.instead.items():
            if re.fullmatch(pattern, path):
                return Response(answer if isinstance(answer, str) else json.dumps(answer))
        answer = self.answer(path)
        if answer is None:
            text = f"org.apache.flink.runtime.rest.NotFoundException: No {path}\n\tat x"
            return Response(json.dumps({"errors": [text]}), 404)
        return Response(json.dumps(answer))

    def answer(self, path: str) -> Any:
        if path == "/overview":
            return {
                "taskmanagers": 1,
                "slots-total": 4,
                "slots-available": 4,
                "jobs-running": len(self.jobs),
                "flink-version": self.version,
                "flink-commit": "c0f8d1a",
            }
        if path == "/jobmanager/config":
            return [{"key": "jobmanager.rpc.address", "value": "127.0.0.1"}]
        if path == "/jobs/overview":
            return {"jobs": [job.overview() for job in self.jobs]}
        _, _, job_id, *rest = path.split("/")
        job = next((job for job in self.jobs if job.id == job_id), None)
        return None if job is None else job.answer("/".join(rest))


class EngineServer(HTTPServer):
    """Stops without the half second that its base class waits."""

    def thread_target(self) -> None:
        assert self.server is not None
        self.server.serve_forever(poll_interval=0.02)


@pytest.fixture
def make_engine() -> Iterator[Callable[[], FakeEngine]]:
    started: list[tuple[HTTPServer, FakeEngine]] = []

    def make() -> FakeEngine:
        server = EngineServer(host="127.0.0.1", threaded=True)
        server.start()  # type: ignore[no-untyped-call]
        started.append((server, FakeEngine(server)))
        return started[-1][1]

    yield make
    for server, engine in started:
        engine.released.set()
        server.stop()  # type: ignore[no-untyped-call]


@pytest.fixture
def engine(make_engine: Callable[[], FakeEngine]) -> FakeEngine:
    return make_engine()


class Workers:
    """Two workers that take turns, two ticks each, so that a worker's cache is valid in one tick and stale in another.

    The test sets the time by `clock`. Each tick happens `after_s` after the last one.
    """

    def __init__(self) -> None:
        self.clock = START + timedelta(minutes=5)
        self._limit_s = 30.0
        self._ticks = 0
        self._pollers: list[Poller] = []

    @property
    def limit_s(self) -> float:
        return self._limit_s

    @limit_s.setter
    def limit_s(self, limit_s: float) -> None:
        """Set the time limit of all further requests."""
        self._limit_s = limit_s
        self.stop()

    def __call__(self, after_s: float = 20.0) -> str:
        self.clock += timedelta(seconds=after_s)
        self._ticks += 1
        return self.tick((self._ticks - 1) // 2 % 2)

    def tick(self, worker: int) -> str:
        poller = self.worker(worker)
        sentences = []
        poller.start_due()
        while poller.in_flight:
            sentences += poller.serve(30.0)
        return " ".join(map(str, sentences))

    def worker(self, number: int) -> Poller:
        while len(self._pollers) <= number:
            self._pollers.append(Poller(lambda: self.clock, self.make_client).__enter__())
        return self._pollers[number]

    def stop(self) -> None:
        for poller in self._pollers:
            poller.__exit__()
        self._pollers.clear()

    def make_client(self, connection: Connection) -> FlinkClient:
        return FlinkClient(connection, read_limit_s=self.limit_s)


@pytest.fixture
def poll(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    monkeypatch.setattr(observe, "FIGURES_FOR_S", 60.0)  # all figures are read, even on a slow machine
    workers = Workers()
    yield workers
    workers.stop()


@pytest.fixture
def watch(db: None) -> Callable[..., Cluster]:
    """Return a function that stores a cluster, which is polled from then on."""
    numbers = itertools.count(1)

    def make(engine: FakeEngine, **values: Any) -> Cluster:
        return Cluster.objects.create(name=f"cluster-{next(numbers)}", rest_url=engine.url, **values)

    return make


@pytest.fixture
def cluster(engine: FakeEngine, watch: Callable[..., Cluster]) -> Cluster:
    return watch(engine)
