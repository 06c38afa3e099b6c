"""Waymark connects only to the address that it has checked."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import pytest
from pytest_httpserver import HTTPServer

from monitoring import outbound_http
from monitoring.outbound import Policy, ResolveAsync, Why, parse_exemptions
from monitoring.outbound_http import AddressDenied, NotReached, send

HERE = Policy("A channel", private=False, exemptions=parse_exemptions(["127.0.0.0/8"]))
PUBLIC = Policy("A channel", private=False)


def resolving(*answers: Sequence[str]) -> ResolveAsync:
    """Return a resolver that gives these answers in turn."""
    turns = iter(answers)

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return next(turns)

    return resolve


async def unresolved(_host: str, _port: int) -> Sequence[str]:
    raise OSError("no such name")


def test_the_name_is_the_hosts_and_the_address_the_checked_one(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/hook", headers={"Host": f"hooks.example:{httpserver.port}"}).respond_with_data("ok")
    url = f"http://hooks.example:{httpserver.port}/hook"
    assert send("POST", url, HERE, body=b"x", resolve=resolving(["127.0.0.1"])).text == "ok"


def test_an_address_that_is_not_allowed_is_never_connected_to(httpserver: HTTPServer) -> None:
    with pytest.raises(AddressDenied, match=r"hooks.example is 127.0.0.1, this machine itself"):
        send("POST", f"http://hooks.example:{httpserver.port}/hook", PUBLIC, resolve=resolving(["127.0.0.1"]))
    assert httpserver.log == []


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "127.1", "１２７.0.0.1"])
def test_an_address_that_is_written_out_is_judged_too(httpserver: HTTPServer, host: str) -> None:
    """aiohttp does not resolve a host that looks like a number."""
    with pytest.raises((AddressDenied, NotReached)):
        send("POST", f"http://{host}:{httpserver.port}/hook", PUBLIC)
    assert httpserver.log == []


def test_a_name_without_an_address_is_named() -> None:
    with pytest.raises(AddressDenied, match=r"The name hooks.example does not resolve: no such name") as raised:
        send("POST", "http://hooks.example/hook", PUBLIC, resolve=unresolved)
    assert raised.value.denied.why is Why.UNRESOLVED


def test_a_name_that_resolves_to_another_address_is_checked_again(httpserver: HTTPServer) -> None:
    """The first DNS answer is allowed, the second one is not: changing the name between requests must not help."""
    httpserver.expect_request("/hook").respond_with_data("ok")
    url = f"http://hooks.example:{httpserver.port}/hook"
    resolve = resolving(["127.0.0.1"], ["10.0.0.1"])
    assert send("POST", url, HERE, resolve=resolve).status == 200
    with pytest.raises(AddressDenied, match=r"hooks.example is 10.0.0.1, a private address"):
        send("POST", url, HERE, resolve=resolve)


def test_the_next_address_is_tried_when_one_does_not_answer(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/hook").respond_with_data("ok")
    url = f"http://hooks.example:{httpserver.port}/hook"
    assert send("POST", url, HERE, resolve=resolving(["127.0.0.2", "127.0.0.1"])).text == "ok"


def test_a_redirect_is_not_followed(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/hook").respond_with_data("", 302, {"Location": "http://169.254.169.254/"})
    assert send("GET", httpserver.url_for("/hook"), HERE).status == 302


def test_a_path_is_sent_as_it_was_typed(httpserver: HTTPServer) -> None:
    """The path may be signed, or contain an encoded secret."""
    httpserver.expect_request(re.compile(".*")).respond_with_data("ok")
    send("GET", f"http://127.0.0.1:{httpserver.port}/a%2Fb/%7Ec?sig=x%2By%3D&to=é#part", HERE)
    ((request, _),) = httpserver.log
    assert request.environ["RAW_URI"] == "/a%2Fb/%7Ec?sig=x%2By%3D&to=%C3%A9"


@pytest.mark.parametrize("answer", [None, b"", b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nno header\r\n\r\n"])
def test_no_failure_repeats_the_url(monkeypatch: pytest.MonkeyPatch, answer: bytes | None) -> None:
    monkeypatch.setattr(outbound_http, "TIMEOUT", aiohttp.ClientTimeout(total=0.5))
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/secret-word"
        sent = pool.submit(send, "GET", url, HERE)
        connection, _ = listener.accept()
        with connection:
            if answer is not None:
                connection.recv(1000)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
            with pytest.raises((TimeoutError, NotReached)) as raised:
                sent.result(10)
    assert str(raised.value)
    assert "secret-word" not in str(raised.value)


def test_a_closed_port_is_reported_without_the_path() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NotReached, match=f"127.0.0.1:{port}") as raised:
        send("GET", f"http://127.0.0.1:{port}/secret-word", HERE)
    assert "secret-word" not in str(raised.value)
