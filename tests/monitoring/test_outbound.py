"""Where people may make Waymark connect to."""

from __future__ import annotations

import pytest

from monitoring.outbound import Allowed, Denied, Policy, Why, check, parse_exemptions, resolve

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
        ("93.184.216.34", "", ""),
        ("2606:2800:220:1:248:1893:25c8:1946", "", ""),
        ("10.1.2.3", "a private address", ""),
        ("172.16.0.1", "a private address", ""),
        ("192.168.1.1", "a private address", ""),
        ("100.64.0.1", "a private address", ""),
        ("fd12::1", "a private address", ""),
        ("127.0.0.1", "this machine itself", ""),
        ("127.9.9.9", "this machine itself", ""),
        ("::1", "this machine itself", ""),
        ("::ffff:127.0.0.1", "this machine itself", ""),
        ("64:ff9b::7f00:1", "this machine itself", ""),
        ("2002:7f00:1::", "this machine itself", ""),
        ("169.254.169.254", "hand out credentials", "hand out credentials"),
        ("::ffff:169.254.169.254", "hand out credentials", "hand out credentials"),
        ("fd00:ec2::254", "hand out credentials", "hand out credentials"),
        ("100.100.100.200", "hand out credentials", "hand out credentials"),
        ("169.254.170.2", "a link-local address", "a link-local address"),
        ("fe80::1%2", "a link-local address", "a link-local address"),
        ("0.0.0.0", "no address of a server", "no address of a server"),
        ("0.1.2.3", "no address of a server", "no address of a server"),
        ("::", "no address of a server", "no address of a server"),
        ("224.0.0.1", "a multicast address", "a multicast address"),
        ("ff02::1", "a multicast address", "a multicast address"),
        ("255.255.255.255", "a reserved address", "a reserved address"),
        ("240.0.0.1", "a reserved address", "a reserved address"),
        ("fec0::1", "a private address", ""),
        ("feff:ffff::1", "a private address", ""),
        ("3fff::1", "a reserved address", "a reserved address"),
        ("192.88.99.1", "a reserved address", "a reserved address"),
        ("5f00::1", "a reserved address", "a reserved address"),
        ("64:ff9b:1::7f00:1", "a reserved address", "a reserved address"),
        ("::7f00:1", "a reserved address", "a reserved address"),
        ("2001:db8::1", "a private address", ""),
        ("198.18.0.1", "a private address", ""),
    ],
)
def test_what_kind_of_address_is_for_whom(address: str, for_webhooks: str, for_clusters: str) -> None:
    for policy, said in ((WEBHOOKS, for_webhooks), (CLUSTERS, for_clusters)):
        refusal = denied("https://hooks.example/x", policy, address)
        assert (refusal is None) is (said == "")
        if refusal:
            assert refusal.why is Why.FORBIDDEN
            assert said in refusal.sentence
            assert "WAYMARK_OUTBOUND_ALLOW" in refusal.sentence
            # The box helps only where it would be enough.
            assert ("“May lead to a private address”, or" in refusal.sentence) is (for_clusters == "")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "begins with http"),
        ("hooks.example", "begins with http"),
        ("ftp://hooks.example", "begins with http"),
        ("file:///etc/passwd", "begins with http"),
        ("https://", "The host is missing"),
        ("http://:80", "The host is missing"),
        ("http://a:99999", "no address: Port out of range"),
        ("http://a:b", "no address: Port could not"),
        ("http://[::1", "no address"),
        ("http://user:pw@a", "Name and password"),
        ("http://user@a", "Name and password"),
        ("http://a b", "no spaces"),
        ("http://a\n.example", "no spaces"),
        ("http://a\\@b", "backslashes"),
        ("http://a..b", "'a..b' is no name"),
        (f"http://{'a' * 64}.example", "is no name"),
        ("http://a/" + "x" * 2000, "at most 2000"),
    ],
)
def test_what_is_no_address_is_said_and_not_looked_up(url: str, said: str) -> None:
    def resolve(_host: str, _port: int) -> list[str]:
        raise AssertionError("looked up")

    found = check(url, WEBHOOKS, resolve)
    assert isinstance(found, Denied)
    assert (found.why, said in found.sentence) == (Why.NOT_A_URL, True), found.sentence


def test_a_name_that_does_not_resolve_is_told_apart() -> None:
    def resolve(_host: str, _port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    found = check("https://gone.example", WEBHOOKS, resolve)
    assert found == Denied(Why.UNRESOLVED, "The name gone.example does not resolve: Name or service not known.")


def test_one_forbidden_address_among_good_ones_is_enough() -> None:
    refusal = denied("https://x.example", WEBHOOKS, "93.184.216.34", "10.0.0.1")
    assert refusal is not None
    assert refusal.sentence.startswith("x.example is 10.0.0.1, a private address.")


def test_what_is_allowed_names_the_addresses_to_connect_to() -> None:
    found = check("https://Hooks.Example./a?b=c", WEBHOOKS, at("93.184.216.34", "93.184.216.34"))
    assert isinstance(found, Allowed)
    assert (found.target.host, found.target.port, found.addresses) == ("hooks.example", 443, ("93.184.216.34",))


@pytest.mark.parametrize(
    ("entry", "url", "address", "good"),
    [
        ("10.0.0.0/8", "http://x", "10.1.1.1", True),
        ("10.0.0.0/8", "http://x", "11.1.1.1", True),  # public anyway
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
def test_an_administrator_allows_more(entry: str, url: str, address: str, good: bool) -> None:
    policy = Policy("A channel", private=False, exemptions=parse_exemptions([entry]))
    assert isinstance(check(url, policy, at(address)), Allowed) is good


@pytest.mark.parametrize("entry", ["10.0.0.0/40", "http://x", "a b", "x:y", "user@x", "x/y", "*."])
def test_an_entry_that_is_none_is_named(entry: str) -> None:
    with pytest.raises(ValueError, match="is not allowed; a network like"):
        parse_exemptions(["10.0.0.0/8", "", entry])


def test_numbers_that_are_addresses_in_disguise_are_seen_through() -> None:
    """As the system's resolver reads them: 0x7f.1 and 2130706433 are 127.0.0.1."""
    for host in ("0x7f.1", "2130706433", "127.1", "017700000001"):
        found = check(f"http://{host}/", WEBHOOKS, resolve)
        assert isinstance(found, Denied), host
        assert found.why in (Why.FORBIDDEN, Why.UNRESOLVED)
