"""A simulated cluster over real HTTP, with all calls of the poller, of savepoints and of restarts.

It also records how many runs of a job lived at once and, for every accepted launch, the other runs at that moment.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.monitoring.fake_job_manager import TERMINAL, FakeJobManager, FakeSavepoint
from tests.monitoring.polling.conftest import FakeJob as ReadJob

Answer = tuple[int, dict[str, Any]]
FORGOTTEN = "forgotten"
COMMANDS = ("run", "validate", "trigger", "stop", "cancel", "dispose")


@dataclass
class PlayedJob(ReadJob):
    """A run that started from `savepoint_path`. `died_at` is on the simulated clock, None while the run lives."""

    savepoint_path: str | None = None
    died_at: float | None = None

    @property
    def alive(self) -> bool:
        return self.state not in TERMINAL


@dataclass(frozen=True)
class Launch:
    """A launch that the engine accepted. `others` has earlier runs of that name with their statuses, oldest first."""

    job_id: str
    name: str
    path: str
    others: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Asked:
    at: float
    call: str
    job_id: str
    trigger_id: str


@dataclass
class PlayedCluster(FakeJobManager):
    """A cluster whose `clock`, in seconds, is wrong by `skew_s`. `silent`: it neither executes nor answers a call.

    `meet(call, acted)` is called before and after every call is executed, in the thread that serves the request. If it
    returns true, the connection ends without an answer.
    """

    clock: Callable[[], float] = time.time
    skew_s: float = 0.0
    silent: bool = False
    savepoint_takes_s: float = 0.0
    checkpointing: bool = True
    meet: Callable[[str, bool], bool] = lambda _call, _acted: False
    launches: list[Launch] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    canceled_by_us: list[str] = field(default_factory=list)
    # the most runs that were live at the same time, by job name
    most_at_once: Counter[str] = field(default_factory=Counter)
    most_savepoints: int = 0
    ends_at: dict[str, float] = field(default_factory=dict)  # end times of savepoints, by trigger ID
    stored: set[str] = field(default_factory=set)  # paths of snapshots whose files exist
    forgotten: dict[str, PlayedJob] = field(default_factory=dict)

    def now_ms(self) -> int:
        return int((self.clock() + self.skew_s) * 1000)

    # --- events of jobs

    def begin(self, name: str, path: str = "", job_id: str = "") -> PlayedJob:
        with self.lock:
            named = {"id": job_id} if job_id else {}
            # Start times differ even if the simulated clock stands still: no job restarts within a millisecond.
            started = max(self.now_ms(), *(job.started + 1 for job in self._all()), 0)
            job = PlayedJob(name=name, started=started, savepoint_path=path or None, **named)
            job.checkpointing = self.checkpointing
            if path:
                job.restored = {
                    "id": 1,
                    "restore_timestamp": self.now_ms(),
                    "is_savepoint": "savepoint" in path,
                    "external_path": path,
                }
            self.jobs[job.id] = job  # type: ignore[assignment]
            self._count_alive()
            return job

    def end(self, job: PlayedJob, state: str = "FAILED", why: str = "") -> None:
        with self.lock:
            job.state, job.ended, job.moved, job.died_at = state, self.now_ms(), self.now_ms(), self.clock()
            if state == "FINISHED":  # a finished job loses its checkpoints, but not its savepoints
                self.stored -= {path for path in self.stored if path.startswith(f"file:/cp/{job.id}/")}
            if state == "FAILED":
                (entry,) = self._exceptions([], {})[1]["exceptionHistory"]["entries"]
                job.exceptions = [entry | {"stacktrace": why or entry["stacktrace"]}]

    def come_back(self, job: PlayedJob) -> None:
        """Let the job run again: a job manager that lost its leadership had reported a wrong status (FLINK-39704)."""
        with self.lock:
            job.state, job.ended, job.moved, job.died_at = "RUNNING", -1, self.now_ms(), None
            self.jobs[job.id] = job  # type: ignore[assignment]
            self.forgotten.pop(job.id, None)
            self._count_alive()

    def forget(self, job: PlayedJob) -> None:
        """Forget the job, as a replaced job manager without high availability does."""
        with self.lock:
            self.forgotten[job.id] = job
            del self.jobs[job.id]

    def checkpoint(self, job: PlayedJob) -> str:
        with self.lock:
            triggered = max(self.now_ms(), *(one.triggered + 1 for one in job.checkpoints), 0)
            made = job.add(len(job.checkpoints) + 1, triggered=triggered)
            made.path = f"file:/cp/{job.id}/chk-{made.id}"
            self.stored.add(made.path)
            return made.path

    def lacks(self, path: str | None) -> bool:
        """Return whether the snapshot has no files. A job that starts from it fails permanently."""
        return bool(path) and path not in self.stored

    def runs(self, name: str) -> list[PlayedJob]:
        with self.lock:
            found: list[Any] = [job for job in self.jobs.values() if job.name == name]
            return sorted(found, key=lambda job: job.started)

    def living(self, name: str) -> PlayedJob | None:
        return next((job for job in self.runs(name) if job.alive), None)

    # --- requests

    def answer(self, method: str, path: str, body: dict[str, Any]) -> Answer | None:
        parts = path.partition("?")[0].strip("/").split("/")
        call = self._name(method, parts)
        with self.lock:
            job_id = parts[1] if len(parts) > 1 and parts[0] == "jobs" else body.get("jobId", "")
            self.asked.append(Asked(self.clock(), call, job_id, body.get("triggerId", "")))
        if self.silent:
            return None
        self.meet(call, False)
        answer = super().answer(method, path, body)
        cut_off = self.meet(call, True)
        return None if self.silent or cut_off else answer

    def _name(self, method: str, parts: list[str]) -> str:  # type: ignore[override]
        match method, parts:
            case "GET", ["overview" | "jobmanager", *_]:
                return "cluster"
            case "GET", ["jobs", _, "savepoints", _]:
                return "status"
            case "GET", ["jobs", job_id, *_] if job_id != "overview":
                return "read"
        return super()._name(method, parts)

    def _cluster(self, parts: list[str], _body: dict[str, Any]) -> Any:
        if parts[0] == "jobmanager":
            return 200, [{"key": "jobmanager.rpc.address", "value": "127.0.0.1"}]
        version = {"flink-version": "2.3.0", "flink-commit": "c0f8d1a"}
        return 200, {"taskmanagers": 1, "slots-total": 4, "slots-available": 4, "jobs-running": 1, **version}

    def _overview(self, _parts: list[str], _body: dict[str, Any]) -> Answer:
        return 200, {"jobs": [job.overview() for job in self._all()]}

    def _read(self, parts: list[str], _body: dict[str, Any]) -> Answer:
        job = next((job for job in self._all() if job.id == parts[1]), None)
        found = None if job is None else job.answer("/".join(parts[2:]))
        return (404, {"errors": [f"No {'/'.join(parts)}"]}) if found is None else (200, found)

    def _run(self, parts: list[str], body: dict[str, Any]) -> Answer:
        job_id, path = body["jobId"], body.get("savepointPath") or ""
        if job_id in self.jobs:
            return 409, {"errors": [f"Job {job_id} has already been submitted."]}
        if self.lacks(path) and self.can_validate:
            return 400, {"errors": [f"{path} is not there."]}
        name = body.get("flinkConfiguration", {}).get("pipeline.name", parts[1])
        others = tuple((job.id, FORGOTTEN if job.id in self.forgotten else job.state) for job in self._ever(name))
        self.launches.append(Launch(job_id, name, path, others))
        job = self.begin(name, path, job_id)
        job.state = self._first_state()
        if self.lacks(path):
            # Flink accepts the job, and fails it when it does not find the snapshot.
            self.end(job, why=f"java.io.FileNotFoundException: Cannot find checkpoint or savepoint '{path}'")
        return 200, {"jobid": job_id}

    def _validate(self, parts: list[str], body: dict[str, Any]) -> Answer:
        if self.can_validate and self.lacks(body["savepointPath"]):
            return 200, {"valid": False, "reason": "its files are not there"}
        return super()._validate(parts, body)

    def _trigger(self, parts: list[str], body: dict[str, Any], stops: bool = False) -> Answer:
        job, trigger_id = self.jobs.get(parts[1]), body["triggerId"]
        if trigger_id in self.savepoints:
            return 202, {"request-id": trigger_id}
        if job is None:
            return 404, {"errors": [f"Job {parts[1]} not found"]}
        answer = super()._trigger(parts, body, stops)
        self.ends_at[trigger_id] = self.clock() + self.savepoint_takes_s
        if job.state != "RUNNING":
            self.savepoints[trigger_id].failure = "Checkpoint triggering task is not being executed at the moment."
        self.most_savepoints = max(self.most_savepoints, sum(1 for _ in self._under_way()))
        return answer

    def _status(self, parts: list[str], body: dict[str, Any]) -> Answer:
        under_way = parts[3] in self.savepoints and self.clock() < self.ends_at[parts[3]]
        if under_way:
            return 200, {"status": {"id": "IN_PROGRESS"}, "operation": None}
        savepoint = self.savepoints.get(parts[3])
        if savepoint is not None and not savepoint.failure:
            self._finish(savepoint)
        return super()._status(parts, body)

    def _finish(self, savepoint: FakeSavepoint) -> None:
        job: Any = self.jobs.get(savepoint.job_id)
        if job is None or any(one.path == savepoint.location for one in job.checkpoints):
            return
        if not job.alive:
            savepoint.failure = f"The job is {job.state}."
            return
        made = job.add(len(job.checkpoints) + 1, triggered=self.now_ms(), is_savepoint=True)
        made.path = savepoint.location
        self.stored.add(made.path)
        if savepoint.stops:
            self.end(job, "FINISHED")

    def _cancel(self, parts: list[str], _body: dict[str, Any]) -> Answer:
        job: Any = self.jobs.get(parts[1])
        if job is None:
            return 404, {"errors": [f"Job {parts[1]} not found"]}
        self.canceled_by_us.append(job.id)
        if job.alive:
            self.end(job, "CANCELED")
        return 202, {}

    def _ever(self, name: str) -> list[PlayedJob]:
        known: list[Any] = [*self.jobs.values(), *self.forgotten.values()]
        return sorted((job for job in known if job.name == name), key=lambda job: job.started)

    def _all(self) -> list[Any]:
        return list(self.jobs.values())

    def _under_way(self) -> Iterator[str]:
        return (trigger_id for trigger_id, end in self.ends_at.items() if self.clock() < end)

    def _count_alive(self) -> None:
        for name, lives in Counter(job.name for job in self._all() if job.alive).items():
            self.most_at_once[name] = max(self.most_at_once[name], lives)
