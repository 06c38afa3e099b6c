"""A fake job manager over real HTTP with failure switches.

Recovery relies on two guarantees of Flink's REST API, which the fake keeps: a job ID runs once, and a trigger ID starts
one savepoint.
"""

from __future__ import annotations

import json
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from checkpointing.rest.requests import uploaded_file

TERMINAL = ("FAILED", "CANCELED", "FINISHED")
_CALLS = {
    "GET jobmanager/config": "config",
    "GET jobs/overview": "overview",
    "GET jobs/*": "job",
    "GET jobs/*/exceptions": "exceptions",
    "POST jobs/*/savepoints": "trigger",
    "POST jobs/*/stop": "stop",
    "GET jobs/*/savepoints/*": "status",
    "PATCH jobs/*": "cancel",
    "GET jars": "jars",
    "GET jars/*/content": "content",
    "POST jars/upload": "upload",
    "POST jars/*/run": "run",
    "POST savepoints/validate": "validate",
    "POST savepoints/import": "import",
    "GET savepoints/import/*": "import_status",
    "POST savepoint-disposal": "dispose",
    "GET savepoint-disposal/*": "disposal",
}
_WORDS = frozenset(word for call in _CALLS for word in call.partition(" ")[2].split("/") if word != "*")


@dataclass
class FakeJob:
    id: str
    name: str
    state: str
    savepoint_path: str | None = None


@dataclass
class FakeSavepoint:
    job_id: str
    location: str
    status: str = "IN_PROGRESS"
    failure: str = ""
    stops: bool = False


@dataclass
class FakeJobManager:
    """A job manager whose failure switches are sets of the names of calls.

    The names are config, jars, upload, run, validate, trigger, stop, status, cancel, overview, dispose and disposal.
    """

    url: str = ""
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    savepoints: dict[str, FakeSavepoint] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    # Calls that are executed, but whose connection ends without an answer.
    loses_answer_of: set[str] = field(default_factory=set)
    # Calls whose connection ends before they are executed.
    loses_request_of: set[str] = field(default_factory=set)
    hangs_at: set[str] = field(default_factory=set)
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)  # status and message, not executed
    invalid_paths: dict[str, str] = field(default_factory=dict)
    missing_paths: set[str] = field(default_factory=set)  # paths without a snapshot
    refused_paths: dict[str, str] = field(default_factory=dict)  # paths that fail only when a job starts from them
    checkpoints: dict[str, str] = field(default_factory=dict)  # job ID by path; deleted when the job is FINISHED
    can_validate: bool = True
    config: dict[str, str] | None = None  # None: the configuration is not available
    answers_once: dict[str, tuple[int, str]] = field(default_factory=dict)
    starts_as: str | list[str] = "RUNNING"  # one status, or one for each launch
    vertices: list[tuple[str, str]] = field(default_factory=list)  # names and statuses, the same for every job
    launch_wait: dict[str, Any] | None = None  # the same for every job
    exception: str = "java.lang.RuntimeException: out of luck"
    completes_savepoints: bool = True
    imports: dict[str, dict[str, Any]] = field(default_factory=dict)  # request bodies by trigger ID
    import_fails: str = ""
    jars: dict[str, bytes] = field(default_factory=lambda: {"program.py": b"", "program-2.py": b""})
    ran: list[dict[str, Any]] = field(default_factory=list)  # request bodies of accepted launches
    disposal_fails: str = ""
    disposed: list[str] = field(default_factory=list)
    disposals: dict[str, str] = field(default_factory=dict)  # request id -> failure
    end_times: dict[str, int] = field(default_factory=dict)  # end times of jobs in ms; -1 if missing
    most_alive: int = 0
    release: threading.Event = field(default_factory=threading.Event)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def add(self, job_id: str, name: str, state: str = "RUNNING") -> FakeJob:
        self.jobs[job_id] = FakeJob(job_id, name, state)
        self._count_alive()
        return self.jobs[job_id]

    def alive(self) -> list[FakeJob]:
        return [job for job in self.jobs.values() if job.state not in TERMINAL]

    def count(self, call: str) -> int:
        return self.calls.count(call)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """Return status and body of the answer, or None if the connection ends without an answer."""
        parts = path.partition("?")[0].strip("/").split("/")
        call = self._name(method, parts)
        with self.lock:
            self.calls.append(call)
        if call in self.hangs_at:
            self.release.wait(30)
            return None
        if call in self.loses_request_of:
            return None
        if call in self.answers or call in self.answers_once:
            status, message = self.answers_once.pop(call, None) or self.answers[call]
            return status, {"errors": [message]}
        with self.lock:
            answer = getattr(self, f"_{call}")(parts, body)
            self._count_alive()
        return None if call in self.loses_answer_of else answer

    @staticmethod
    def _name(method: str, parts: list[str]) -> str:
        """Return the name of the call, found by its path with a star in place of each ID."""
        stars = [part if part in _WORDS else "*" for part in parts]
        return _CALLS.get(f"{method} {'/'.join(stars)}", "unknown")

    def _count_alive(self) -> None:
        self.most_alive = max(self.most_alive, len(self.alive()))

    def _unknown(self, parts: list[str], _body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return 404, {"errors": [f"Not found: {'/'.join(parts)}"]}

    def _config(self, parts: list[str], body: dict[str, Any]) -> tuple[int, Any]:
        if self.config is None:
            return self._unknown(parts, body)
        return 200, [{"key": key, "value": value} for key, value in self.config.items()]

    def _overview(self, _parts: list[str], _body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        jobs = [
            {
                "jid": job.id,
                "name": job.name,
                "state": job.state,
                "start-time": 1_800_000_000_000,
                "end-time": self.end_times.get(job.id, -1),
            }
            for job in self.jobs.values()
        ]
        return 200, {"jobs": jobs}

    def _exceptions(self, _parts: list[str], _body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        entry = {
            "exceptionName": "java.lang.RuntimeException",
            "stacktrace": self.exception,
            "timestamp": 1_800_000_000_000,
        }
        return 200, {"exceptionHistory": {"entries": [entry], "truncated": False}}

    def _jars(self, _parts: list[str], _body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return 200, {"files": [{"id": jar_id, "name": jar_id, "entry": []} for jar_id in self.jars]}

    def _content(self, parts: list[str], _body: dict[str, Any]) -> tuple[int, Any]:
        found = self.jars.get(parts[1])
        return (200, found) if found is not None else (404, {"errors": [f"Jar file {parts[1]} does not exist"]})

    def _upload(self, _parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        jar_id = f"{uuid.uuid4()}_{body['name']}"
        self.jars[jar_id] = body["content"]
        return 200, {"filename": f"/up/{jar_id}", "status": "success"}

    def _run(self, parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        job_id = body.get("jobId") or uuid.uuid4().hex
        if job_id in self.jobs:
            return 409, {"errors": [f"Job {job_id} has already been submitted."]}
        if parts[1] not in self.jars:
            return 400, {"errors": [f"Jar file /up/{parts[1]} does not exist"]}
        if body.get("savepointPath") in self.refused_paths:
            return 400, {"errors": [self.refused_paths[body["savepointPath"]]]}
        if self._is_deleted(body.get("savepointPath")):
            return 400, {"errors": ["there is no _metadata"]}
        self.ran.append(body)
        name = body.get("flinkConfiguration", {}).get("pipeline.name", parts[1])
        self.jobs[job_id] = FakeJob(job_id, name, self._first_state(), body.get("savepointPath"))
        return 200, {"jobid": job_id}

    def _first_state(self) -> str:
        return self.starts_as if isinstance(self.starts_as, str) else self.starts_as.pop(0)

    def _job(self, parts: list[str], _body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        job = self.jobs[parts[1]]
        vertices = [
            {"id": uuid.uuid4().hex, "name": name, "parallelism": 1, "status": status} for name, status in self.vertices
        ]
        named = {"jid": job.id, "name": job.name, "state": job.state}
        times = {"start-time": 1_800_000_000_000, "end-time": -1}
        return 200, {**named, **times, "vertices": vertices, "launch-wait": self.launch_wait}

    def _validate(self, _parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if not self.can_validate:
            return 404, {"errors": ["Not found."]}
        path = body["savepointPath"]
        missing = path in self.missing_paths or self._is_deleted(path)
        reason = self.invalid_paths.get(path) or ("there is no _metadata" if missing else None)
        return 200, {"valid": reason is None, "reason": reason or "", "missing": missing}

    def _is_deleted(self, path: str | None) -> bool:
        owner = self.jobs.get(self.checkpoints.get(path or "", ""))
        return owner is not None and owner.state == "FINISHED"

    def _trigger(self, parts: list[str], body: dict[str, Any], stops: bool = False) -> tuple[int, dict[str, Any]]:
        trigger_id = body["triggerId"]
        job_id = parts[1]
        made = FakeSavepoint(job_id, f"file:/savepoints/savepoint-{job_id[:6]}-{trigger_id[:12]}", stops=stops)
        self.savepoints.setdefault(trigger_id, made)
        return 202, {"request-id": trigger_id}

    def _stop(self, parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return self._trigger(parts, body, stops=True)

    def _status(self, parts: list[str], _body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        savepoint = self.savepoints.get(parts[3])
        if savepoint is None:
            return 404, {"errors": ["There is no savepoint operation with triggerId."]}
        if savepoint.failure:
            trace = f"java.lang.Exception: {savepoint.failure}"
            failure = {"class": "java.lang.Exception", "stack-trace": trace}
            return 200, {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": failure}}
        if not self.completes_savepoints:
            return 200, {"status": {"id": "IN_PROGRESS"}, "operation": None}
        if savepoint.stops and savepoint.job_id in self.jobs:
            self.jobs[savepoint.job_id].state = "FINISHED"
        return 200, {"status": {"id": "COMPLETED"}, "operation": {"location": savepoint.location}}

    def _import(self, _parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.imports.setdefault(body["triggerId"], body)
        return 202, {"request-id": body["triggerId"]}

    def _import_status(self, parts: list[str], _body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if parts[2] not in self.imports:
            return 404, {"errors": [f"There is no import with triggerId={parts[2]}."]}
        if not self.completes_savepoints:
            return 200, {"status": {"id": "IN_PROGRESS"}, "operation": None}
        if self.import_fails:
            trace = f"ImportRefused: {self.import_fails}\nCaused by: IncompleteBatch: state/0/1"
            failure = {"class": "ImportRefused", "stack-trace": trace}
            return 200, {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": failure}}
        made = f"file:/savepoints/savepoint-imported-{parts[2][:12]}"
        return 200, {"status": {"id": "COMPLETED"}, "operation": {"location": made}}

    def _dispose(self, _parts: list[str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        request_id, path = uuid.uuid4().hex, body["savepoint-path"]
        there = path not in self.disposed
        self.disposals[request_id] = "" if there else f"Cannot find checkpoint or savepoint file/directory '{path}'"
        if self.disposal_fails:
            self.disposals[request_id] = self.disposal_fails
        else:
            self.disposed.append(path)
        return 200, {"request-id": request_id}

    def _disposal(self, parts: list[str], _body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if parts[1] not in self.disposals:
            return 404, {"errors": ["There is no disposal operation with triggerId."]}
        failure = self.disposals[parts[1]]
        trace = {"class": "java.io.IOException", "stack-trace": f"java.io.IOException: {failure}"}
        return 200, {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": trace} if failure else {}}

    def _cancel(self, parts: list[str], _body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.jobs[parts[1]].state = "CANCELED"
        return 202, {}


def _body(kind: str, content: bytes) -> dict[str, Any]:
    if kind.startswith("multipart/"):
        file = uploaded_file(kind, content, "jarfile")
        return {"name": file.name, "content": file.content}
    return json.loads(content or b"{}") or {}


class _Server(ThreadingHTTPServer):
    """An HTTP server that does not log errors of killed clients."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


Manager = TypeVar("Manager", bound=FakeJobManager)


@contextmanager
def running_job_manager() -> Iterator[FakeJobManager]:
    with serving(FakeJobManager()) as manager:
        yield manager


@contextmanager
def serving(manager: Manager) -> Iterator[Manager]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # send an answer in one piece

        def log_message(self, *_args: object) -> None: ...

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = _body(self.headers.get("Content-Type") or "", self.rfile.read(length))
            answer = manager.answer(self.command, self.path, body)
            if answer is None:
                self.close_connection = True
                return
            status, content = answer
            raw = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 (http.server's names)

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    manager.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield manager
    finally:
        manager.release.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
