"""A proxy that understands ZooKeeper's frames and breaks one request at a chosen point.

A frame is four bytes of length and its content. The first frame of a connection creates or resumes a session. Each
later request begins with its number and its type, and each answer with the number of its request. Pings, and requests
that the client repeats after a reconnection, have negative numbers and are not counted.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from enum import Enum

_CLOSE_SESSION = struct.pack(">iii", 8, 1 << 30, -11)


class Point(Enum):
    """When the connection breaks: before the server receives the request, or after it executes it without an answer."""

    BEFORE_THE_REQUEST = "before the request"
    BEFORE_THE_ANSWER = "before the answer"


class Loss(Enum):
    """What is lost: a connection, whose session can be resumed, or the session with its ephemeral nodes."""

    CONNECTION = "connection"
    SESSION = "session"


class ZooKeeperFaultProxy:
    """A proxy that forwards all requests except the one that `break_at` chose."""

    def __init__(self, server: str) -> None:
        host, _, port = server.split(",")[0].partition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._remaining = 0
        self._point = Point.BEFORE_THE_REQUEST
        self._loss = Loss.CONNECTION
        self.broke = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def break_at(self, request: int, point: Point, loss: Loss) -> None:
        """Break the connection at the `request`-th request from now on (the next is 1). Then set `broke`."""
        with self._lock:
            self.broke.clear()
            self._remaining, self._point, self._loss = request, point, loss

    @property
    def remaining(self) -> int:
        """Return the number of requests up to and including the chosen one."""
        with self._lock:
            return self._remaining

    def close(self) -> None:
        with self._lock:
            for end in self._sockets:
                _shut(end)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                with self._lock:
                    self._sockets |= {client, server}
                threading.Thread(target=_Session(self, client, server).run, daemon=True).start()

    def next_is_broken(self) -> tuple[Point, Loss] | None:
        with self._lock:
            self._remaining -= 1
            return (self._point, self._loss) if self._remaining == 0 else None


class _Session:
    """One connection. It forwards requests on this thread and answers on another one."""

    def __init__(self, proxy: ZooKeeperFaultProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._is_muted = False
        self._awaited: int | None = None
        self._answered = threading.Event()
        self._ended = threading.Event()

    def run(self) -> None:
        answers = threading.Thread(target=self._pass_answers_on, daemon=True)
        answers.start()
        with contextlib.suppress(OSError):
            self._pass_requests_on()
        _shut(self._client)
        _shut(self._server)
        answers.join()
        self._client.close()
        self._server.close()

    def _pass_requests_on(self) -> None:
        self._server.sendall(_frame(self._client))
        while frame := _frame(self._client):
            number = struct.unpack(">i", frame[4:8])[0]
            broken = self._proxy.next_is_broken() if number > 0 else None
            if broken is not None:
                self._break(frame, number, *broken)
                return
            self._server.sendall(frame)

    def _break(self, frame: bytes, number: int, point: Point, loss: Loss) -> None:
        self._is_muted = True
        if point is Point.BEFORE_THE_ANSWER:
            self._awaited = number
            self._server.sendall(frame)
            assert self._answered.wait(20), "the server did not answer"
        if loss is Loss.SESSION:
            self._server.sendall(_CLOSE_SESSION)
            assert self._ended.wait(20), "the server did not end the session"
        self._proxy.broke.set()

    def _pass_answers_on(self) -> None:
        with contextlib.suppress(OSError):
            self._client.sendall(_frame(self._server))
            while frame := _frame(self._server):
                if not self._is_muted:
                    self._client.sendall(frame)
                elif struct.unpack(">i", frame[4:8])[0] == self._awaited:
                    self._answered.set()
        _shut(self._client)
        self._ended.set()


def _frame(source: socket.socket) -> bytes:
    """Read one frame: its length and content, or nothing at the end of the connection."""
    head = _exactly(source, 4)
    return head + _exactly(source, struct.unpack(">i", head)[0]) if head else b""


def _exactly(source: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = source.recv(count - len(received))
        if not part:
            return b""
        received += part
    return received


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
