"""Decide whether Waymark may connect to an address that a person entered. The caller passes the resolver.

There are two policies. Clusters are in private networks, so private and loopback addresses are allowed for them. Only
public addresses are allowed for webhooks. Link-local, metadata, multicast and reserved addresses are allowed for
neither. An administrator allows more with `WAYMARK_OUTBOUND_ALLOW`: networks, addresses, hosts and `*.domain`, with or
without a port.

A caller must connect to one of `Allowed.addresses`, and must not resolve the name again: the second result may be a
forbidden address (DNS rebinding). A caller must not follow redirects.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from monitoring.reasons.addresses import AddressReason
from monitoring.reasons.reason import Reason

Address = IPv4Address | IPv6Address
# A function that returns the IP addresses of a host and port as texts. It raises OSError if there are none.
Resolve = Callable[[str, int], Sequence[str]]
ResolveAsync = Callable[[str, int], Awaitable[Sequence[str]]]

# Not the executor of the event loop: `asyncio.run` would wait for its threads while a DNS server does not answer.
_RESOLVING = ThreadPoolExecutor(64, thread_name_prefix="resolves-a-name")
LONGEST_URL = 2000
_PORTS = {"http": 80, "https": 443}
# Clouds serve credentials at these addresses. Other such addresses are link-local, so they are forbidden anyway.
_METADATA = frozenset(
    map(ip_address, ("169.254.169.254", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"))
)
_NAT64 = IPv6Network("64:ff9b::/96")
_THIS_NETWORK = IPv4Network("0.0.0.0/8")
_SHARED = IPv4Network("100.64.0.0/10")
# Private and reserved ranges that Python's ipaddress treats as global (RFC 3879, RFC 9637, RFC 7526).
_SITE_LOCAL = IPv6Network("fec0::/10")
_NOT_GLOBAL = (IPv6Network("3fff::/20"), IPv4Network("192.88.99.0/24"))


class Why(Enum):
    NOT_A_URL = "not a URL"
    UNRESOLVED = "does not resolve"
    FORBIDDEN = "is not allowed"


@dataclass(frozen=True)
class Denied:
    """The address is not allowed. `reason` says why and what is allowed. It has only the host of the URL."""

    why: Why
    reason: Reason


@dataclass(frozen=True)
class Target:
    """The server of a URL before name resolution. `host` is in the resolver's form: ASCII, without brackets."""

    scheme: str
    host: str
    port: int


@dataclass(frozen=True)
class Allowed:
    target: Target
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Exemption:
    """An entry of WAYMARK_OUTBOUND_ALLOW. Exactly one of `network` and `name` is set."""

    network: IPv4Network | IPv6Network | None
    name: str
    port: int | None

    def covers(self, target: Target, address: Address) -> bool:
        if self.port not in (None, target.port):
            return False
        if self.network is not None:
            return address in self.network
        if self.name.startswith("*."):
            return target.host.endswith(self.name[1:])
        return target.host == self.name


@dataclass(frozen=True)
class Policy:
    """The rules for addresses. `what` is the start of the sentence in a refusal."""

    what: Reason | str
    private: bool
    exemptions: tuple[Exemption, ...] = ()


def parse_exemptions(entries: Iterable[str]) -> tuple[Exemption, ...]:
    """Return the parsed entries. Raise ValueError with the invalid entry."""
    return tuple(_exemption(entry.strip().lower()) for entry in entries if entry.strip())


def check(url: str, policy: Policy, resolve: Resolve) -> Allowed | Denied:
    target = parse(url)
    if isinstance(target, Denied):
        return target
    try:
        found = resolve(target.host, target.port)
    except OSError as error:
        return unresolved(target, error)
    return judge(target, found, policy)


def target_of(url: str, policy: Policy) -> Target | Denied:
    """Return the URL's target. Check a literal IP address here; the resolver checks names later."""
    target = parse(url)
    if isinstance(target, Denied) or not is_address(target.host):
        return target
    judged = judge(target, [target.host], policy)
    return judged if isinstance(judged, Denied) else target


def parse(url: str) -> Target | Denied:
    """Return the target of an http or https URL. A user or a password in the URL is not allowed."""
    if len(url) > LONGEST_URL:
        return _no_url(AddressReason.TOO_LONG(most=LONGEST_URL, count=len(url)))
    if any(character.isspace() or not character.isprintable() for character in url) or "\\" in url:
        return _no_url(AddressReason.BAD_CHARACTERS())
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), parts.hostname or "", parts.port
    except ValueError as error:
        return _no_url(AddressReason.UNREADABLE(error=str(error)))
    if scheme not in _PORTS:
        return _no_url(AddressReason.BAD_SCHEME())
    if not host:
        return _no_url(AddressReason.NO_HOST(scheme=scheme))
    if parts.username is not None or parts.password is not None:
        return _no_url(AddressReason.HAS_CREDENTIALS())
    ascii_host = _ascii(host)
    if ascii_host is None:
        return _no_url(AddressReason.BAD_HOST(host=host))
    return Target(scheme, ascii_host, _PORTS[scheme] if port is None else port)


def judge(target: Target, found: Sequence[str], policy: Policy) -> Allowed | Denied:
    """Check the resolved addresses. All must be allowed, because a connection may use any of them."""
    if not found:
        return Denied(Why.UNRESOLVED, AddressReason.WITHOUT_ADDRESS(host=target.host))
    for text in found:
        address = ip_address(text.partition("%")[0])
        if any(each.covers(target, address) for each in policy.exemptions):
            continue
        kind = _forbidden(_embedded(address), private_allowed=policy.private)
        if kind is not None:
            # For an address that clusters may have, the checkbox in a channel's form is enough.
            is_private = _forbidden(_embedded(address), private_allowed=True) is None
            how = AddressReason.BOX_OR_SETTING() if is_private else "WAYMARK_OUTBOUND_ALLOW"
            said = {"host": target.host, "kind": kind(), "what": policy.what, "how": how}
            if target.host == text:
                return Denied(Why.FORBIDDEN, AddressReason.FORBIDDEN(**said))
            return Denied(Why.FORBIDDEN, AddressReason.NAME_FORBIDDEN(**said, address=text))
    return Allowed(target, tuple(dict.fromkeys(found)))


def is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_this_machine(host: str) -> bool:
    """Return whether a host, as in `Target`, is a loopback address or localhost. It resolves no name."""
    if is_address(host):
        return _embedded(ip_address(host)).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def resolve(host: str, port: int) -> Sequence[str]:
    """Resolve with the system's resolver. It takes seconds if no DNS server answers."""
    return _texts(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


async def resolve_async(host: str, port: int) -> Sequence[str]:
    return await asyncio.get_running_loop().run_in_executor(_RESOLVING, resolve, host, port)


def _texts(found: Sequence[tuple[object, object, object, object, tuple[object, ...]]]) -> Sequence[str]:
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def _no_url(reason: Reason) -> Denied:
    return Denied(Why.NOT_A_URL, reason)


def unresolved(target: Target, error: OSError) -> Denied:
    return Denied(Why.UNRESOLVED, AddressReason.UNRESOLVED(host=target.host, error=error.strerror or str(error)))


def _ascii(host: str) -> str | None:
    """Return the host in the resolver's form, ASCII and lower case, or None if it is not a valid host."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        name = host.encode("idna").decode("ascii").lower().removesuffix(".")
    except UnicodeError:
        return None
    labels = name.split(".")
    good = all(label and all(c.isalnum() or c in "-_" for c in label) for label in labels)
    return name if good and len(name) <= 253 else None


def _embedded(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address contains, else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)


def _forbidden(address: Address, *, private_allowed: bool) -> AddressReason | None:
    """Return the kind of a forbidden address, None if the address is allowed."""
    if address in _METADATA:
        return AddressReason.METADATA
    if address.is_link_local:
        return AddressReason.LINK_LOCAL
    if address.is_multicast:
        return AddressReason.MULTICAST
    if address.is_unspecified or address in _THIS_NETWORK:
        return AddressReason.UNSPECIFIED
    if address.is_loopback:
        return None if private_allowed else AddressReason.LOOPBACK
    if address.is_reserved or any(address in each for each in _NOT_GLOBAL):
        return AddressReason.RESERVED
    if address.is_private or address in _SHARED or address in _SITE_LOCAL:
        return None if private_allowed else AddressReason.PRIVATE
    return None if address.is_global else AddressReason.RESERVED


def _exemption(entry: str) -> Exemption:
    try:
        return Exemption(ip_network(entry, strict=False), "", None)
    except ValueError:
        pass
    target = parse(f"http://{entry.removeprefix('*.')}")
    if isinstance(target, Denied) or "/" in entry or (":" in entry and not entry.rpartition(":")[2].isdecimal()):
        raise ValueError(f"{entry!r} is not allowed; use a network such as 10.0.0.0/8, an address, a host, or *.domain")
    port = target.port if ":" in entry.rpartition("]")[2] else None
    try:
        return Exemption(ip_network(target.host), "", port)
    except ValueError:
        return Exemption(None, ("*." if entry.startswith("*.") else "") + target.host, port)
