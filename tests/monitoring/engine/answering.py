"""A server that sends recorded answers of a real Flink, one of which a test may replace by a wrong one."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).resolve().parents[2] / "flink_samples"
DRIP_S = 0.2


def sample(name: str) -> Any:
    return json.loads((SAMPLES / f"{name}.json").read_text())


def answers_of(job_ids: list[str]) -> dict[str, Any]:
    """Return all answers of a cluster with these jobs, by path. Each job has three checkpoints in its history."""
    (listed,) = sample("jobs_overview")["jobs"]
    answers: dict[str, Any] = {
        "/overview": sample("overview"),
        "/jobmanager/config": [{"key": "web.checkpoints.history", "value": "10"}],
        "/jobs/overview": {"jobs": [{**listed, "jid": each, "name": f"job {each}"} for each in job_ids]},
    }
    for each in job_ids:
        answers |= _answers_of_job(each)
    return answers


def _answers_of_job(job_id: str) -> dict[str, Any]:
    base = f"/jobs/{job_id}"
    listed = sample("checkpoints")
    details, subtasks = sample("checkpoint_details"), sample("checkpoint_subtasks")
    answers = {
        base: {**sample("job"), "jid": job_id, "name": f"job {job_id}"},
        f"{base}/config": {**sample("job_config"), "jid": job_id},
        f"{base}/exceptions": sample("exceptions_after_decline"),
        f"{base}/checkpoints": listed,
        f"{base}/checkpoints/config": sample("checkpoints_config"),
    }
    for entry in listed["history"]:
        path = f"{base}/checkpoints/details/{entry['id']}"
        answers[path] = {**entry, "tasks": details["tasks"]}
        for vertex in details["tasks"]:
            answers[f"{path}/subtasks/{vertex}"] = {**subtasks, "id": entry["id"]}
    return copy.deepcopy(answers)


@dataclass
class Transfer:
    """How an answer is sent. `cut_at`: the connection ends after so many bytes. `drips`: one byte at a time."""

    status: int = 200
    kind: str = "application/json"
    cut_at: int | None = None
    drips: bool = False


@dataclass
class AnsweringEngine:
    """A server that answers with `bodies`, by path, and with 404 for every other path."""

    url: str = ""
    bodies: dict[str, bytes] = field(default_factory=dict)
    transfers: dict[str, Transfer] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def serve(self, answers: dict[str, Any]) -> None:
        self.bodies = {path: json.dumps(answer).encode() for path, answer in answers.items()}
        self.transfers = {}


@contextmanager
def answering_engine() -> Iterator[AnsweringEngine]:
    engine = AnsweringEngine()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_args: object) -> None: ...

        def do_GET(self) -> None:
            body = engine.bodies.get(self.path)
            transfer = engine.transfers.get(self.path, Transfer())
            if body is None:
                body, transfer = b'{"errors": ["org.apache.flink.NotFoundException: nothing"]}', Transfer(404)
            self.send_response(transfer.status)
            self.send_header("Content-Type", transfer.kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if transfer.drips:
                self._drip(body)
            else:
                self.wfile.write(body[: transfer.cut_at])
            self.close_connection = self.close_connection or transfer.cut_at is not None

        def _drip(self, body: bytes) -> None:
            try:
                for index in range(len(body)):
                    self.wfile.write(body[index : index + 1])
                    if engine.over.wait(DRIP_S):
                        break
            except OSError:  # the client has disconnected
                pass
            self.close_connection = True

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        # More than the connections of a poller: a client that finds the queue full retries only after a second.
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    engine.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield engine
    finally:
        engine.over.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
