"""Clients that are slow, or mean, hold no thread of the web server. A real gunicorn with two threads serves them."""

from __future__ import annotations

import http.client
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dashboard.stack.ports import accepts, any_free
from dashboard.web_server.worker import LARGEST_COLLECTED, Arrival, arrival
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[3]
HALF_A_HEAD = b"GET /half HTTP/1.1\r\nHost: x\r\n"
HALF_A_BODY = b"POST /half HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n12345"
NO_CHUNK = b"POST /unread HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
NO_LARGE_BODY = b"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999\r\n\r\n"
STAYS_OPEN = b"GET /ends HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@contextmanager
def serving(log: Path, **environ: str) -> Iterator[int]:
    port = any_free()
    options = ("--bind", f"127.0.0.1:{port}", "--threads", "2")
    command = (sys.executable, "-m", "gunicorn", "--config", "python:dashboard.web_server.config", *options)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "tests.dashboard.web_server.served"],
            cwd=ROOT,
            env={**os.environ, **environ},
            stdout=output,
            stderr=output,
        )
    try:
        eventually("gunicorn listens", lambda: accepts(port), 60)
        yield port
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with serving(tmp_path_factory.mktemp("web") / "gunicorn.log") as port:
        yield port


Connect = Callable[[], socket.socket]


@pytest.fixture
def connect(port: int) -> Iterator[Connect]:
    with ExitStack() as left:
        yield lambda: left.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))


def ask(connection: socket.socket, request: bytes, answer: bytes) -> bytes:
    """Send `request` and read until `answer` has come."""
    connection.sendall(request)
    return read_until(connection, answer)


def read_until(connection: socket.socket, answer: bytes) -> bytes:
    said = b""
    while answer not in said:
        chunk = connection.recv(65536)
        assert chunk, f"closed after {said!r}"
        said += chunk
    return said


@pytest.mark.parametrize("sent", [b"", HALF_A_HEAD, HALF_A_BODY, NO_CHUNK, NO_LARGE_BODY])
def test_others_are_served_meanwhile(port: int, connect: Connect, sent: bytes) -> None:
    """Within a time in which none of them has been given up."""
    for _ in range(30):
        connect().sendall(sent)
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
    client.request("GET", "/healthz")
    assert client.getresponse().read() == b"GET /healthz 0"
    client.close()


def test_a_request_that_comes_in_pieces_is_served_whole(connect: Connect) -> None:
    connection = connect()
    request = b"POST /pieces HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345"
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in request[:-1]:
        connection.sendall(bytes([byte]))
    ask(connection, request[-1:], b"POST /pieces 5")


def test_requests_that_come_together_are_served_in_order(connect: Connect) -> None:
    requests = b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(5))
    said = ask(connect(), requests, b"GET /4 0")
    assert [said.index(b"GET /%d 0" % number) for number in range(5)] == sorted(
        said.index(b"GET /%d 0" % number) for number in range(5)
    )


def test_a_large_body_is_read_and_ends_the_connection(connect: Connect) -> None:
    size = LARGEST_COLLECTED * 3
    head = b"POST /large HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size
    said = ask(connect(), head + b"x" * size, b"POST /large %d" % size)
    assert b"Connection: close" in said


def test_clients_that_stay_after_the_end_delay_no_other(connect: Connect) -> None:
    """gunicorn waits two seconds for each of them, a minute in all."""
    for rounds in range(2):
        connections = [connect() for _ in range(15)]
        for connection in connections:
            connection.settimeout(15)
            connection.sendall(STAYS_OPEN)
        for connection in connections:
            read_until(connection, b"GET /ends 0")
            assert connection.recv(1) == b"", rounds


def test_an_idle_connection_outlasts_the_pauses_of_clients_that_poll(connect: Connect) -> None:
    connection = connect()
    request = b"GET /poll HTTP/1.1\r\nHost: x\r\n\r\n"
    ask(connection, request, b"GET /poll 0")
    assert select.select([connection], [], [], 4) == ([], [], []), "gunicorn's own limit is 2 s"
    ask(connection, request, b"GET /poll 0")


def test_a_head_without_end_is_cut_off(connect: Connect) -> None:
    connection = connect()
    with pytest.raises(ConnectionError):  # noqa: PT012  (when it breaks depends on the kernel's buffers)
        connection.sendall(HALF_A_HEAD + b"X: " + b"y" * 200_000)
        while connection.recv(65536):
            pass
        raise ConnectionResetError


def test_a_request_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """A byte now and then starts no new time."""
    with (
        serving(tmp_path / "gunicorn.log", WAYMARK_TEST_REQUEST_LIMIT="1", HOME=str(tmp_path)) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as connection,
    ):

        def is_closed() -> bool:
            try:
                connection.sendall(b"G")
                return bool(select.select([connection], [], [], 0)[0]) and connection.recv(1) == b""
            except ConnectionError:
                return True

        eventually("it is given up", is_closed, 60)
    assert [path.name for path in tmp_path.iterdir()] == ["gunicorn.log"], "no control socket"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", Arrival.PART),
        (b"GET / HTTP/1.1\r\n", Arrival.PART),
        (b"GET / HTTP/1.1\r\n\r\n", Arrival.WHOLE),
        (b"POST / HTTP/1.1\r\ncontent-length:2\r\n\r\n1", Arrival.PART),
        (b"POST / HTTP/1.1\r\nContent-Length: 2 \r\n\r\n12", Arrival.WHOLE),
        (b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (LARGEST_COLLECTED + 1), Arrival.HEAD),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Arrival.HEAD),
        (b"x" * 70_000, Arrival.UNUSABLE),
    ],
)
def test_what_has_arrived_is_judged_by_its_head(data: bytes, found: Arrival) -> None:
    assert arrival(data) is found
