"""Parse the SMTP server address of EMAIL_URL or a channel: `smtp+tls://user:password@mail.example.org:587`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

# Scheme: port, TLS from the first byte, TLS after STARTTLS
SCHEMES = {
    "smtp": (25, False, False),
    "smtps": (465, True, False),
    "smtp+ssl": (465, True, False),
    "smtp+tls": (587, False, True),
    "submission": (587, False, True),
}
ALLOWED = "an address like smtp+tls://user:password@mail.example.org:587 is needed (smtp, smtps or smtp+tls)"


@dataclass(frozen=True)
class ServerAddress:
    host: str
    port: int
    user: str
    password: str
    use_ssl: bool
    use_tls: bool


class BadServerAddress(ValueError):
    """The text is not an address of an SMTP server. `shown` is the address without a password."""

    def __init__(self, shown: str) -> None:
        super().__init__(f"{shown!r} is not allowed; {ALLOWED}")
        self.shown = shown


def parse_server(url: str) -> ServerAddress:
    """Return the parsed address. Raise BadServerAddress."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise BadServerAddress("…") from None
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise BadServerAddress(f"{parts.scheme}://{parts.hostname or ''}" if parts.scheme else "…")
    usual, use_ssl, use_tls = SCHEMES[parts.scheme]
    use_ssl, use_tls = use_ssl or _has_option(parts, "ssl"), use_tls or _has_option(parts, "tls")
    if use_ssl and use_tls:
        raise BadServerAddress(f"{parts.scheme}://{parts.hostname}/?ssl=…&tls=…")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return ServerAddress(parts.hostname, port or usual, user, password, use_ssl, use_tls)


def _has_option(parts: SplitResult, name: str) -> bool:
    """Return whether the address has an option like `?tls=true`, the older form of the scheme."""
    return parse_qs(parts.query).get(name, [""])[-1].lower() in {"1", "true", "yes", "on"}
