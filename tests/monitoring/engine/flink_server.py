"""A server that sends recorded answers of Flink, or other answers that a test chooses, over HTTP or TLS."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).resolve().parents[2] / "flink_samples"
PROCESS = "5f3d6cd0-c060-4285-9ccb-db5305534a48"
# The configuration of a Flink 2.3.0 with ZooKeeper, shortened.
MANAGER = {
    "high-availability.type": "zookeeper",
    "high-availability.cluster-id": "/demo",
    "high-availability.zookeeper.path.root": "/flink",
    "high-availability.zookeeper.quorum": "zk1:2181,zk2:2181",
    "jobmanager.rpc.address": "127.0.0.1",
    "execution.checkpointing.dir": "file:///checkpoints",
    "execution.checkpointing.savepoint-dir": "file:///savepoints",
    "web.checkpoints.history": "25",
    "web.tmpdir": f"/tmp/flink-web-{PROCESS}",
}


@dataclass
class FlinkServer:
    """A server whose `answers` replace the recorded ones, by path: status, headers, body.

    `needs` has the headers that a request must have.
    """

    url: str = ""
    manager: dict[str, str] = field(default_factory=lambda: dict(MANAGER))
    needs: Mapping[str, str] = field(default_factory=dict)
    answers: dict[str, tuple[int, Mapping[str, str], bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def instead(self, path: str, body: str, status: int = 200, **headers: str) -> None:
        self.answers[path] = (status, headers, body.encode())

    def answer(self, path: str) -> tuple[int, Mapping[str, str], bytes]:
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        match path:
            case "/overview" | "/config":
                return 200, {}, (SAMPLES / f"{path[1:]}.json").read_bytes()
            case "/jobs/overview":
                return 200, {}, (SAMPLES / "jobs_overview.json").read_bytes()
            case "/jobmanager/config":
                return 200, {}, json.dumps([{"key": k, "value": v} for k, v in self.manager.items()]).encode()
        return 404, {}, json.dumps({"errors": ["Not found."]}).encode()


@contextmanager
def running(tls: ssl.SSLContext | None = None) -> Iterator[FlinkServer]:
    flink = FlinkServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:
            wrong = [name for name, value in flink.needs.items() if self.headers.get(name) != value]
            status, headers, body = (401, {}, b'{"errors":["Who are you?"]}') if wrong else flink.answer(self.path)
            self.send_response_only(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """Ignore clients that disconnect because they do not trust the certificate: tests expect them to."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        # The TLS handshake takes place in the connection's thread.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    flink.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    try:
        yield flink
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
