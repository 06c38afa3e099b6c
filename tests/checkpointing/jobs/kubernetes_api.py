"""The part of the Kubernetes API that Spark's client uses for a driver: it stores and removes pods, but runs none."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class KubernetesApi:
    """An API server. `pods` is by path, `objects` (all others) by kind; `deleted` has the paths of removed pods."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.objects: dict[str, dict[str, Any]] = {}
        self.deleted: list[str] = []
        self.over = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))

    @property
    def master(self) -> str:
        return f"k8s://http://127.0.0.1:{self._server.server_address[1]}"

    @contextlib.contextmanager
    def serving(self) -> Iterator[KubernetesApi]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self.over.set()
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def made(self, path: str, what: dict[str, Any]) -> dict[str, Any]:
        if what["kind"] == "Pod":
            what["metadata"]["uid"] = "1"
            what["status"] = {"phase": "Running", "containerStatuses": []}
            self.pods[f"{path}/{what['metadata']['name']}"] = what
        else:
            self.objects[what["kind"]] = what
        return what


def _handler_of(api: KubernetesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self._answer(201, api.made(self.path, self._body()))

        def do_PATCH(self) -> None:
            self._answer(200, api.made(self.path, self._body()))

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if "watch=true" in query:
                self._watched()
            elif path in api.pods:
                self._answer(200, api.pods[path])
            else:
                self._answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})

        def do_DELETE(self) -> None:
            path = self.path.partition("?")[0]
            self._body()
            api.deleted.append(path)
            self._answer(200, api.pods.pop(path, {}))

        def log_message(self, *arguments: Any) -> None:
            pass

        def _body(self) -> dict[str, Any]:
            return dict(json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}"))

        def _answer(self, status: int, what: dict[str, Any]) -> None:
            content = json.dumps(what).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _watched(self) -> None:
            """Answer a watch without events until the server ends."""
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            api.over.wait()
            self.close_connection = True

    return Handler
