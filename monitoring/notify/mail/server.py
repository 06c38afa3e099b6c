"""The SMTP server of a mail channel: its own (`smtp://user:password@host:port`), or the one in the settings.

An administrator chose the settings' server, so any address is allowed. A channel's own server is checked like a
webhook's address, and the connection uses the checked IP address.
"""

from __future__ import annotations

import smtplib
import socket
from dataclasses import dataclass
from typing import Any

from django.core.mail import get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.core.mail.backends.smtp import EmailBackend

from monitoring.models import Channel
from monitoring.notify.addresses import policy_of
from monitoring.notify.mail.address import ALLOWED, BadServerAddress, parse_server
from monitoring.notify.message import BadChannel
from monitoring.outbound import Denied, Policy, Why, judge, parse, resolve
from monitoring.outbound_http import trusted
from monitoring.reasons.reason import Reason


class ServerDenied(OSError):
    """The server's address is not allowed, so no connection was made."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True)
class MailServer:
    """An SMTP server. `policy` is None for the server in the settings."""

    host: str = ""
    port: int = 0
    user: str = ""
    password: str = ""
    use_ssl: bool = False
    use_tls: bool = False
    policy: Policy | None = None

    @property
    def address(self) -> str:
        from django.conf import settings

        return f"{self.host}:{self.port}" if self.policy else f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}"

    def check(self) -> None:
        """Raise BadChannel if the server's address is not allowed."""
        if self.policy is None:
            return
        try:
            checked_addresses(self.host, self.port, self.policy)
        except ServerDenied as denied:
            raise BadChannel("smtp", self.address, denied.reason) from None
        except OSError:
            return  # the name may resolve later


def server_of(channel: Channel) -> MailServer:
    """Return the channel's server. Raise BadChannel, whose text does not contain the password."""
    url = channel.secret.reveal().strip()
    if not url:
        return MailServer()
    try:
        at = parse_server(url)
    except BadServerAddress as problem:
        raise BadChannel("smtp", problem.shown, ALLOWED) from None
    return MailServer(at.host, at.port, at.user, at.password, at.use_ssl, at.use_tls, policy_of(channel))


def connection_to(server: MailServer, timeout_s: float) -> BaseEmailBackend:
    if server.policy is None:
        connection = get_connection(timeout=timeout_s)
        if isinstance(connection, EmailBackend):
            connection.ssl_context = trusted()
        return connection
    return _CheckedBackend(server, timeout_s)


def checked_addresses(host: str, port: int, policy: Policy) -> tuple[str, ...]:
    """Return the server's allowed IP addresses. Raise ServerDenied, or OSError if the name does not resolve."""
    target = parse(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
    judged = target if isinstance(target, Denied) else judge(target, resolve(target.host, port), policy)
    if isinstance(judged, Denied):
        if judged.why is Why.UNRESOLVED:
            raise OSError(str(judged.reason))
        raise ServerDenied(judged.reason)
    return judged.addresses


class _CheckedBackend(EmailBackend):
    def __init__(self, server: MailServer, timeout_s: float) -> None:
        super().__init__(
            host=server.host,
            port=server.port,
            username=server.user,
            password=server.password,
            use_tls=server.use_tls,
            use_ssl=server.use_ssl,
            timeout=int(timeout_s) or 1,
        )
        self._server = server
        self.ssl_context = trusted()

    @property
    def connection_class(self) -> type[smtplib.SMTP]:
        policy = self._server.policy
        assert policy is not None  # noqa: S101 (a channel's own server has a policy)
        return _checked(smtplib.SMTP_SSL if self.use_ssl else smtplib.SMTP, policy)


def _checked(base: type[smtplib.SMTP], policy: Policy) -> type[smtplib.SMTP]:
    """Return a subclass of `base` that connects only to a checked IP address. TLS still verifies the server's name."""

    class Checked(base):  # type: ignore[misc, valid-type]
        def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
            address = checked_addresses(host, port, policy)[0]
            plain = socket.create_connection((address, port), timeout, self.source_address)
            if not issubclass(base, smtplib.SMTP_SSL):
                return plain
            context: Any = self.context
            return context.wrap_socket(plain, server_hostname=host)  # type: ignore[no-any-return]

    return Checked
