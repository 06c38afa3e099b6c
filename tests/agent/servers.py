"""Servers that the agent may meet instead of Waymark: real sockets, with switches for each failure."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STORED = (200, json.dumps({"version": 1, "stored": 1}).encode(), {})
Answer = tuple[int, bytes, dict[str, str]]


class Waymark:
    """A server that keeps the posts. `answer` decides about each: its status, body and headers."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.posts: list[dict[str, Any]] = []
        self.tokens: set[str] = set()
        self.answer: Callable[[dict[str, Any]], Answer] = lambda post: STORED
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"

    @property
    def stored(self) -> list[dict[str, Any]]:
        """Return the progress of each stored batch."""
        return [each for post in self.posts for each in post["progress"]]

    @property
    def queries(self) -> dict[str, dict[str, Any]]:
        """Return the last report of each run."""
        return {each["run_id"]: each for post in self.posts for each in post["queries"]}

    @contextmanager
    def running(self) -> Iterator[Waymark]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        waymark = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                post = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                waymark.tokens.add(self.headers["Authorization"])
                status, body, headers = waymark.answer(post)
                if status == 200 and body == STORED[1]:
                    waymark.posts.append(post)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        return Handler


@contextmanager
def raw_server(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """Yield the address of a server that accepts connections and calls `talk` with each, in a separate thread."""
    accepted: list[socket.socket] = []
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.05)  # else closing it would not wake the thread

        def accept() -> None:
            while not over.is_set():
                with suppress(TimeoutError):
                    accepted.append(listening.accept()[0])
                    threading.Thread(target=_talk, args=(talk, accepted[-1]), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            over.set()
            thread.join()
            for each in accepted:
                each.close()


def _talk(talk: Callable[[socket.socket], None], connection: socket.socket) -> None:
    with suppress(OSError):
        talk(connection)


def free_address() -> str:
    """Return an address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as once:
        return f"http://127.0.0.1:{once.getsockname()[1]}"


# How a server of `raw_server` talks.


def never_answers(connection: socket.socket) -> None:
    connection.recv(1)
    time.sleep(600)


def drips(connection: socket.socket) -> None:
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.1)


def garbage(connection: socket.socket) -> None:
    connection.recv(65_536)
    connection.sendall(b"\x00\xff garbage \r\n\r\n")
    connection.close()


def page(connection: socket.socket) -> None:
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<html>Log in..")
    connection.close()


def hangs_up(connection: socket.socket) -> None:
    connection.close()
