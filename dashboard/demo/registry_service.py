"""A register of aircraft over HTTP that is slow or fails by the times in schedule.py, and a receiver of webhooks.

GET  /health              200, always without delay
GET  /aircraft/<tailnum>  one aircraft, 404 for one that is not registered
POST /aircraft            a JSON list of tail numbers → {tailnum: aircraft}, those that are registered
POST /webhooks            stores the body (the newest WEBHOOKS_KEPT)
GET  /webhooks            the stored bodies, newest first
"""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event
from typing import Any
from urllib.parse import unquote

from dashboard.demo.schedule import SLOW_ANSWER_S, Condition

WEBHOOKS_KEPT = 100
_LARGEST_BODY = 1_000_000  # bytes
_log = logging.getLogger(__name__)


class RegistryServer(ThreadingHTTPServer):
    """The HTTP server. It calls `condition` at each look-up. When `stopping` is set, slow responses end immediately."""

    daemon_threads = True

    def __init__(
        self,
        address: tuple[str, int],
        planes: Mapping[str, Mapping[str, Any]],
        condition: Callable[[], Condition],
        slow_answer_s: float = SLOW_ANSWER_S,
    ) -> None:
        super().__init__(address, _Handler)
        self.planes = planes
        self.condition = condition
        self.slow_answer_s = slow_answer_s
        self.stopping = Event()
        self.webhooks: deque[dict[str, Any]] = deque(maxlen=WEBHOOKS_KEPT)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that the client has closed, and report other errors."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    server: RegistryServer
    protocol_version = "HTTP/1.1"
    timeout = 30
    wbufsize = -1  # buffer each response, so that it is sent in one packet

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(HTTPStatus.OK, {"condition": self.server.condition().value})
        elif self.path == "/webhooks":
            self._answer(HTTPStatus.OK, list(self.server.webhooks))
        elif self.path.startswith("/aircraft/"):
            if self._is_working():
                plane = self.server.planes.get(unquote(self.path.removeprefix("/aircraft/")))
                self._answer(HTTPStatus.OK if plane else HTTPStatus.NOT_FOUND, plane or {"error": "not registered"})
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "no such page"})

    def do_POST(self) -> None:
        body = self._body()
        if self.path == "/webhooks":
            headers = {name: value for name, value in self.headers.items() if name.lower().startswith("x-")}
            self.server.webhooks.appendleft({"headers": headers, "body": body})
            self._answer(HTTPStatus.OK, {"kept": len(self.server.webhooks)})
        elif self.path != "/aircraft":
            self._answer(HTTPStatus.NOT_FOUND, {"error": "no such page"})
        elif not isinstance(body, list) or not all(isinstance(item, str) for item in body):
            self._answer(HTTPStatus.BAD_REQUEST, {"error": "a JSON list of tail numbers is expected"})
        elif self._is_working():
            planes = self.server.planes
            self._answer(HTTPStatus.OK, {tailnum: planes[tailnum] for tailnum in body if tailnum in planes})

    def _is_working(self) -> bool:
        """Wait if the register is slow. If it is broken, send status 500 and return False."""
        condition = self.server.condition()
        if condition is Condition.SLOW:
            self.server.stopping.wait(self.server.slow_answer_s)
        if condition is Condition.BROKEN:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "the register is out of order"})
            return False
        return True

    def _body(self) -> Any:
        """Return the request's JSON, or None if the body is missing, too large or not JSON."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _LARGEST_BODY:
            self.close_connection = True
            return None
        try:
            return json.loads(self.rfile.read(int(length)))
        except ValueError:
            return None

    def _answer(self, status: HTTPStatus, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (http.server's name)
        _log.debug(format, *args)
