"""What was checked is what is connected to."""

from __future__ import annotations

from collections.abc import Sequence

import httpx2
import pytest
from pytest_httpserver import HTTPServer

from monitoring.outbound import Policy, parse_exemptions
from monitoring.outbound_http import AddressDenied, CheckedTransport

HERE = Policy("A channel", private=False, exemptions=parse_exemptions(["127.0.0.0/8"]))


def client(policy: Policy, *answers: Sequence[str]) -> httpx2.Client:
    """A client whose resolver gives these answers in turn."""
    turns = iter(answers)
    return httpx2.Client(transport=CheckedTransport(policy, lambda _host, _port: next(turns)), trust_env=False)


def test_the_name_is_the_hosts_and_the_address_the_checked_one(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/hook", headers={"Host": f"hooks.example:{httpserver.port}"}).respond_with_data("ok")
    with client(HERE, ["127.0.0.1"]) as http:
        assert http.post(f"http://hooks.example:{httpserver.port}/hook", content=b"x").text == "ok"


def test_an_address_that_is_not_allowed_is_never_connected_to(httpserver: HTTPServer) -> None:
    with (
        client(Policy("A channel", private=False), ["127.0.0.1"]) as http,
        pytest.raises(AddressDenied, match=r"hooks.example is 127.0.0.1, this machine itself"),
    ):
        http.post(f"http://hooks.example:{httpserver.port}/hook")
    assert httpserver.log == []


def test_a_name_that_is_bound_anew_is_judged_anew(httpserver: HTTPServer) -> None:
    """The first answer is good, the second leads elsewhere: a name's owner cannot get past the check in between."""
    httpserver.expect_request("/hook").respond_with_data("ok")
    url = f"http://hooks.example:{httpserver.port}/hook"
    with client(HERE, ["127.0.0.1"], ["10.0.0.1"]) as http:
        assert http.post(url).status_code == 200
        with pytest.raises(AddressDenied, match=r"hooks.example is 10.0.0.1, a private address"):
            http.post(url)


def test_the_next_address_is_tried_when_one_does_not_answer(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/hook").respond_with_data("ok")
    with client(HERE, ["127.0.0.2", "127.0.0.1"]) as http:
        assert http.post(f"http://hooks.example:{httpserver.port}/hook").text == "ok"


def test_a_redirect_is_not_followed(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/hook").respond_with_data("", 302, {"Location": "http://169.254.169.254/"})
    with client(HERE, ["127.0.0.1"]) as http:
        assert http.post(f"http://hooks.example:{httpserver.port}/hook").status_code == 302
