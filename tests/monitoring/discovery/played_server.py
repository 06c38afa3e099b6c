"""What the simulated servers have in common: a real HTTP server on a free port, in threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class PlayedServer:
    """An HTTP server. `changed` guards its state. `over`: it ends, so requests that wait must end, too."""

    over = False

    def listen(self, handler: type[PlayedHandler]) -> None:
        """Open the port. The attribute `played` of the handlers is this object."""
        self.changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Of", (handler,), {"played": self}))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextlib.contextmanager
    def serving(self) -> Iterator[Self]:
        thread = threading.Thread(target=lambda: self._server.serve_forever(0.05))
        thread.start()
        try:
            yield self
        finally:
            with self.changed:
                self.over = True
                self.changed.notify_all()
            self._server.shutdown()
            thread.join()
            self._server.server_close()


class PlayedHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        pass
