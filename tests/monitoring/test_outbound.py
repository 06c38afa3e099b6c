"""The addresses to which people may let Waymark connect."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from monitoring.outbound import Allowed, Denied, Policy, Why, check, parse_exemptions, resolve, resolve_async
from monitoring.reasons.addresses import AddressReason as Kind

WEBHOOKS = Policy("A channel", private=False)
CLUSTERS = Policy("A cluster", private=True)


def at(*addresses: str):
    return lambda _host, _port: list(addresses)


def denied(url: str, policy: Policy, *addresses: str) -> Denied | None:
    found = check(url, policy, at(*addresses))
    return found if isinstance(found, Denied) else None


@pytest.mark.parametrize(
    ("address", "for_webhooks", "for_clusters"),
    [
        ("93.184.216.34", None, None),
        ("2606:2800:220:1:248:1893:25c8:1946", None, None),
        ("10.1.2.3", Kind.PRIVATE, None),
        ("172.16.0.1", Kind.PRIVATE, None),
        ("192.168.1.1", Kind.PRIVATE, None),
        ("100.64.0.1", Kind.PRIVATE, None),
        ("fd12::1", Kind.PRIVATE, None),
        ("127.0.0.1", Kind.LOOPBACK, None),
        ("127.9.9.9", Kind.LOOPBACK, None),
        ("::1", Kind.LOOPBACK, None),
        ("::ffff:127.0.0.1", Kind.LOOPBACK, None),
        ("64:ff9b::7f00:1", Kind.LOOPBACK, None),
        ("2002:7f00:1::", Kind.LOOPBACK, None),
        ("169.254.169.254", Kind.METADATA, Kind.METADATA),
        ("::ffff:169.254.169.254", Kind.METADATA, Kind.METADATA),
        ("fd00:ec2::254", Kind.METADATA, Kind.METADATA),
        ("100.100.100.200", Kind.METADATA, Kind.METADATA),
        ("169.254.170.2", Kind.LINK_LOCAL, Kind.LINK_LOCAL),
        ("fe80::1%2", Kind.LINK_LOCAL, Kind.LINK_LOCAL),
        ("0.0.0.0", Kind.UNSPECIFIED, Kind.UNSPECIFIED),
        ("0.1.2.3", Kind.UNSPECIFIED, Kind.UNSPECIFIED),
        ("::", Kind.UNSPECIFIED, Kind.UNSPECIFIED),
        ("224.0.0.1", Kind.MULTICAST, Kind.MULTICAST),
        ("ff02::1", Kind.MULTICAST, Kind.MULTICAST),
        ("255.255.255.255", Kind.RESERVED, Kind.RESERVED),
        ("240.0.0.1", Kind.RESERVED, Kind.RESERVED),
        ("fec0::1", Kind.PRIVATE, None),
        ("feff:ffff::1", Kind.PRIVATE, None),
        ("3fff::1", Kind.RESERVED, Kind.RESERVED),
        ("192.88.99.1", Kind.RESERVED, Kind.RESERVED),
        ("5f00::1", Kind.RESERVED, Kind.RESERVED),
        ("64:ff9b:1::7f00:1", Kind.RESERVED, Kind.RESERVED),
        ("::7f00:1", Kind.RESERVED, Kind.RESERVED),
        ("2001:db8::1", Kind.PRIVATE, None),
        ("198.18.0.1", Kind.PRIVATE, None),
    ],
)
def test_each_kind_of_address_has_its_permission(
    address: str, for_webhooks: Kind | None, for_clusters: Kind | None
) -> None:
    # The text mentions the check box only if it is sufficient.
    how = Kind.BOX_OR_SETTING() if for_clusters is None else "WAYMARK_OUTBOUND_ALLOW"
    for policy, kind in ((WEBHOOKS, for_webhooks), (CLUSTERS, for_clusters)):
        refusal = denied("https://hooks.example/x", policy, address)
        assert (refusal is None) is (kind is None)
        if refusal and kind:
            output = {"host": "hooks.example", "address": address, "what": policy.what}
            assert refusal == Denied(Why.FORBIDDEN, Kind.NAME_FORBIDDEN(kind=kind(), how=how, **output))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", "must begin with http"),
        ("hooks.example", "must begin with http"),
        ("ftp://hooks.example", "must begin with http"),
        ("file:///etc/passwd", "must begin with http"),
        ("https://", "The host is missing"),
        ("http://:80", "The host is missing"),
        ("http://a:99999", "not a valid address: Port out of range"),
        ("http://a:b", "not a valid address: Port could not"),
        ("http://[::1", "not a valid address"),
        ("http://user:pw@a", "a name or a password"),
        ("http://user@a", "a name or a password"),
        ("http://a b", "cannot contain spaces"),
        ("http://a\n.example", "cannot contain spaces"),
        ("http://a\\@b", "backslashes"),
        ("http://a..b", "'a..b' is not a valid host name"),
        (f"http://{'a' * 64}.example", "is not a valid host name"),
        ("http://a/" + "x" * 2000, "at most 2000"),
    ],
)
def test_an_invalid_address_is_refused_without_a_look_up(url: str, expected: str) -> None:
    def resolve(_host: str, _port: int) -> list[str]:
        raise AssertionError("looked up")

    found = check(url, WEBHOOKS, resolve)
    assert isinstance(found, Denied)
    assert (found.why, expected in str(found.reason)) == (Why.NOT_A_URL, True), str(found.reason)


def test_a_name_that_does_not_resolve_is_distinguished() -> None:
    def resolve(_host: str, _port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    found = check("https://gone.example", WEBHOOKS, resolve)
    reason = Kind.UNRESOLVED(host="gone.example", error="Name or service not known")
    assert found == Denied(Why.UNRESOLVED, reason)
    assert str(reason) == "The name gone.example does not resolve: Name or service not known."


def test_one_forbidden_address_among_good_ones_is_enough() -> None:
    refusal = denied("https://x.example", WEBHOOKS, "93.184.216.34", "10.0.0.1")
    assert refusal is not None
    assert str(refusal.reason).startswith("x.example is 10.0.0.1, a private address. A channel may not point there")


def test_an_address_that_is_written_out_is_named_once() -> None:
    refusal = denied("https://10.0.0.1", WEBHOOKS, "10.0.0.1")
    assert refusal is not None
    assert str(refusal.reason).startswith("10.0.0.1 is a private address. A channel may not point there unless")


def test_an_allowed_name_returns_the_addresses_to_connect_to() -> None:
    found = check("https://Hooks.Example./a?b=c", WEBHOOKS, at("93.184.216.34", "93.184.216.34"))
    assert isinstance(found, Allowed)
    assert (found.target.host, found.target.port, found.addresses) == ("hooks.example", 443, ("93.184.216.34",))


@pytest.mark.parametrize(
    ("entry", "url", "address", "good"),
    [
        ("10.0.0.0/8", "http://x", "10.1.1.1", True),
        ("10.0.0.0/8", "http://x", "11.1.1.1", True),  # a public address
        ("10.0.0.0/8", "http://x", "192.168.1.1", False),
        ("127.0.0.1", "http://127.0.0.1:9", "127.0.0.1", True),
        ("127.0.0.1:8090", "http://127.0.0.1:8090/hook", "127.0.0.1", True),
        ("127.0.0.1:8090", "http://127.0.0.1:5432", "127.0.0.1", False),
        ("[::1]:8090", "http://[::1]:8090", "::1", True),
        ("chat.internal", "https://CHAT.internal", "10.0.0.1", True),
        ("chat.internal:443", "https://chat.internal", "10.0.0.1", True),
        ("chat.internal", "https://evilchat.internal", "10.0.0.1", False),
        ("*.internal", "https://a.b.internal", "10.0.0.1", True),
        ("*.internal", "https://internal", "10.0.0.1", False),
        ("169.254.169.254", "http://169.254.169.254", "169.254.169.254", True),
    ],
)
def test_an_administrator_can_allow_further_addresses(entry: str, url: str, address: str, good: bool) -> None:
    policy = Policy("A channel", private=False, exemptions=parse_exemptions([entry]))
    assert isinstance(check(url, policy, at(address)), Allowed) is good


@pytest.mark.parametrize("entry", ["10.0.0.0/40", "http://x", "a b", "x:y", "user@x", "x/y", "*."])
def test_the_error_names_an_invalid_entry(entry: str) -> None:
    with pytest.raises(ValueError, match="is not allowed; use a network such as"):
        parse_exemptions(["10.0.0.0/8", "", entry])


def test_numbers_that_the_resolver_accepts_as_addresses_are_checked_as_addresses() -> None:
    """The system's resolver accepts other forms of addresses: 0x7f.1 and 2130706433 are 127.0.0.1."""
    for host in ("0x7f.1", "2130706433", "127.1", "017700000001"):
        found = check(f"http://{host}/", WEBHOOKS, resolve)
        assert isinstance(found, Denied), host
        assert found.why in (Why.FORBIDDEN, Why.UNRESOLVED)


def test_a_dns_server_that_hangs_does_not_delay_the_end_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    is_asked, answers, has_answered = threading.Event(), threading.Event(), threading.Event()

    def hang(*args: object, **values: object) -> list[object]:
        is_asked.set()
        answers.wait(30)
        has_answered.set()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)

    async def ask() -> None:
        asked = asyncio.create_task(resolve_async("cluster.example", 443))
        await asyncio.to_thread(is_asked.wait, 30)
        asked.cancel()

    try:
        asyncio.run(ask())
        assert not has_answered.is_set()
    finally:
        answers.set()
