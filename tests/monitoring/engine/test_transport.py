"""How bytes come and go: every answer is read as aiohttp's own session would read it, and limits hold for both ways."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest

from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection, bearer
from monitoring.engine.errors import EngineError, Malformed, NotAsked, Redirected, Trouble, Unreachable
from monitoring.engine.transport import Answer, Transport

BODY_LIMIT = 10_000
BODY = b'{"jobs":[]}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ANSWER = HEAD + b"Content-Length: 11\r\n\r\n" + BODY
# Ends the connection: at once, or when a request was read.
END, HANGS_UP = None, b""


@dataclass
class Server:
    """Sends what is scripted: the next of `connections` for each one that comes, of that the next for each request.

    What a request finds nothing for stays unanswered.
    """

    connections: list[list[bytes | None]]
    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    accepted: int = 0
    was_connected: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self.connections[min(self.accepted, len(self.connections) - 1)]
        self.accepted += 1
        self.was_connected.set()
        try:
            for piece in script:
                if piece is END:
                    break
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                if piece == HANGS_UP:
                    break
                writer.write(piece)
                await writer.drain()
            else:
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def playing(*connections: Sequence[bytes | None], host: str = "127.0.0.1") -> AsyncIterator[Server]:
    server = Server([list(each) for each in connections])
    listening = await asyncio.start_server(server.serve, host, 0)
    port = listening.sockets[0].getsockname()[1]
    server.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    try:
        yield server
    finally:
        listening.close()


@asynccontextmanager
async def asking(url: str, authorization: str = "") -> AsyncIterator[Transport]:
    transport = Transport(Connection(url, authorization), BODY_LIMIT)
    try:
        yield transport
    finally:
        await transport.close()


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


ANSWERS: dict[str, list[bytes | None]] = {
    "plain": [ANSWER],
    "in chunks": [HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(BODY[:4], BODY[4:])],
    "until the connection ends": [HEAD + b"\r\n" + BODY, END],
    "of HTTP/1.0": [ANSWER.replace(b"HTTP/1.1", b"HTTP/1.0"), END],
    "after hints": [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ANSWER],
    "no content": [b"HTTP/1.1 204 No Content\r\n\r\n"],
    "not modified": [b"HTTP/1.1 304 Not Modified\r\n\r\n"],
    "an error": [b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"],
    "elsewhere": [b"HTTP/1.1 302 Found\r\nLocation: http://other/\r\nContent-Length: 5\r\n\r\nmoved"],
    "elsewhere, with much to say": [
        b"HTTP/1.1 307 Found\r\nLocation: /x\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20_000
    ],
    "another protocol": [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"],
    "compressed all the same": [
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(gzip.compress(BODY)) + gzip.compress(BODY)
    ],
    "small and compressed, large when read": [
        HEAD
        + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(gzip.compress(b"x" * 200_000))
        + gzip.compress(b"x" * 200_000)
    ],
    "too large": [HEAD + b"Content-Length: 10001\r\n\r\n" + b"x" * 10_001],
    "too large, in chunks": [HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"x" * 6000, b"x" * 6000)],
    "cut short": [HEAD + b"Content-Length: 11\r\n\r\n{", END],
    "cut short in a chunk": [HEAD + b"Transfer-Encoding: chunked\r\n\r\nff\r\nabc", END],
    "cut short in the head": [HEAD[:20], END],
    "no HTTP": [b"220 mail.example ESMTP\r\n", END],
    "two lengths": [HEAD + b"Content-Length: 11\r\nContent-Length: 5\r\n\r\n" + BODY],
    "a length that is none": [HEAD + b"Content-Length: many\r\n\r\n" + BODY],
    "a length and chunks": [
        HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(BODY),
    ],
    "a header without end": [HEAD + b"X: " + b"x" * 100_000 + b"\r\n\r\n" + BODY],
    "a body that is damaged": [HEAD + b"Content-Encoding: gzip\r\nContent-Length: 11\r\n\r\n" + BODY],
    "nothing": [HANGS_UP],
}


@pytest.mark.parametrize("script", ANSWERS.values(), ids=ANSWERS.keys())
async def test_a_read_says_what_the_session_says(script):
    async def outcome(url: str, *, by_session: bool) -> tuple[object, ...]:
        async with asking(url, bearer("s3cret")) as of:
            try:
                answer = await (of.send("GET", "/jobs", 2.0, None, None) if by_session else of.get("/jobs", 2.0))
            except (EngineError, aiohttp.ClientError, OSError) as error:
                return type(error), str(error) if isinstance(error, EngineError) else ""
        return answer.status, dict(answer.headers), answer.content

    async with playing(script) as server:
        read = await outcome(server.url, by_session=False)
        (asked, *_) = server.requests or [b""]
        server.requests.clear()
        assert read == await outcome(server.url, by_session=True)
        (by_session, *_) = server.requests or [b""]
        assert sorted(asked.split(b"\r\n")) == sorted(by_session.split(b"\r\n"))


@pytest.mark.parametrize(
    ("of", "trouble"),
    [
        ("cut short", Trouble.BROKEN),
        ("no HTTP", Trouble.NO_HTTP),
        ("a header without end", Trouble.NO_HTTP),
        ("nothing", Trouble.HUNG_UP),
    ],
)
async def test_what_is_wrong_is_told_apart(of, trouble):
    async with playing(ANSWERS[of]) as server, FlinkClient(Connection(server.url)) as client:
        with pytest.raises(Unreachable) as told:
            await client.overview()
        assert told.value.trouble is trouble


async def test_what_is_asked():
    async with playing([ANSWER]) as server, asking(f"{server.url}/proxy/flink", bearer("s3cret")) as reads:
        assert (await reads.get("/jobs?mode=x", 2.0)).content == BODY
    first, *headers, _, _ = server.requests[0].decode().split("\r\n")
    assert first == "GET /proxy/flink/jobs?mode=x HTTP/1.1"
    assert sorted(headers) == [
        "Accept-Encoding: identity",
        "Accept: */*",
        "Authorization: Bearer s3cret",
        f"Host: {server.url.removeprefix('http://')}",
        "User-Agent: waymark",
    ]


async def test_an_address_of_the_sixth_version():
    async with playing([ANSWER], host="::1") as server, asking(server.url) as reads:
        assert (await reads.get("/jobs", 2.0)).status == 200
    assert f"Host: {server.url.removeprefix('http://')}\r\n".encode() in server.requests[0]


async def test_one_connection_is_kept():
    async with playing([ANSWER, ANSWER, ANSWER]) as server, asking(server.url) as reads:
        for _ in range(2):
            assert (await reads.get("/jobs", 2.0)).content == BODY
        assert (await reads.send("PATCH", "/jobs/1", 2.0, None, None)).content == BODY
    assert server.accepted == 1


async def test_a_kept_connection_that_has_ended_is_no_trouble():
    async with playing([ANSWER, END], [ANSWER]) as server, asking(server.url) as reads:
        for _ in range(2):
            assert (await reads.get("/jobs", 2.0)).content == BODY
    assert server.accepted == 2


async def test_a_server_that_always_hangs_up_is_asked_twice():
    async with playing([HANGS_UP]) as server, asking(server.url) as reads:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await reads.get("/jobs", 2.0)
    assert server.accepted == 2


async def test_what_comes_after_an_answer_is_no_answer_to_the_next_question():
    async with playing([ANSWER + ANSWER.replace(b"jobs", b"lies")], [ANSWER]) as server, asking(server.url) as reads:
        for _ in range(2):
            assert (await reads.get("/jobs", 2.0)).content == BODY
    assert server.accepted == 2


async def test_what_came_too_late_is_no_answer_to_the_next_question():
    late = HEAD + b"Content-Length: 11\r\n\r\n"
    async with playing([late], [ANSWER]) as server, asking(server.url) as reads:
        with pytest.raises(TimeoutError):
            await reads.get("/jobs", 0.2)
        assert (await reads.get("/jobs", 2.0)).content == BODY
    assert server.accepted == 2


async def test_a_read_that_is_given_up_leaves_nothing():
    async with playing([], [ANSWER]) as server, asking(server.url) as reads:
        asked = asyncio.create_task(reads.get("/jobs", 30.0))
        async with asyncio.timeout(5):
            await server.was_connected.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (await reads.get("/jobs", 2.0)).content == BODY


async def test_each_gets_its_own_answer():
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1]
                await asyncio.sleep(hash(path) % 7 / 1000)
                writer.write(HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(path), path))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listening = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with listening, asking(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}") as reads:
        paths = [f"/{number}" for number in range(200)]
        answers: list[Answer] = await asyncio.gather(*(reads.get(path, 10.0) for path in paths))
        assert [answer.content.decode() for answer in answers] == paths


async def test_a_secret_with_a_line_break_is_sent_to_nobody():
    async with playing([ANSWER]) as server, asking(server.url, "Bearer a\r\nX-Other: b") as reads:
        with pytest.raises(ValueError, match="line break"):
            await reads.get("/jobs", 2.0)
    assert server.requests == []


async def test_an_address_that_is_not_allowed_is_not_asked():
    async with asking("http://169.254.169.254") as reads:
        with pytest.raises(NotAsked):
            await reads.get("/jobs", 2.0)


async def test_a_redirect_is_told_and_its_connection_ended():
    async with playing(ANSWERS["elsewhere, with much to say"], [ANSWER]) as server, asking(server.url) as reads:
        with pytest.raises(Redirected):
            await reads.get("/jobs", 2.0)
        assert (await reads.get("/jobs", 2.0)).content == BODY
    assert server.accepted == 2


async def test_what_grows_when_it_is_read_has_the_same_limit():
    async with playing(ANSWERS["small and compressed, large when read"]) as server, asking(server.url) as reads:
        with pytest.raises(Malformed, match="larger than 10000 bytes"):
            await reads.get("/jobs", 2.0)
