"""Access to a ZooKeeper ensemble: authentication and encryption."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import ACL, CREATOR_ALL_ACL, Id, Permissions, make_digest_acl_credential

from checkpointing.ha.kazoo_internals import LogIn, check, intercept_log_in
from checkpointing.model.zookeeper_access import ZooKeeperAccessFiles, ZooKeeperScheme


@dataclass(frozen=True)
class ZooKeeperAccess:
    """The access to ZooKeeper. Without `tls` the connection is plain text."""

    scheme: ZooKeeperScheme = ZooKeeperScheme.NONE
    username: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None

    def client_options(self) -> dict[str, Any]:
        """Return the options for a new client. A client with a name creates nodes that only it may use."""
        options: dict[str, Any] = {}
        match self.scheme:
            case ZooKeeperScheme.DIGEST:
                options["auth_data"] = [("digest", f"{self.username}:{self.password}")]
            case ZooKeeperScheme.SASL:
                names = {"username": self.username, "password": self.password}
                options["sasl_options"] = {"mechanism": "DIGEST-MD5", **names}
        if options:
            options["default_acl"] = CREATOR_ALL_ACL
        if self.tls is not None:
            options |= {"handler": _TlsHandler(self.tls), "use_ssl": True}
        return options

    @property
    def has_name(self) -> bool:
        """Return whether only this user may use the nodes that it creates."""
        return self.scheme is not ZooKeeperScheme.NONE

    def owns(self, acls: Iterable[ACL]) -> bool:
        """Return whether a node with these ACLs can be changed only by this user.

        Over TLS the server adds the subject of this user's certificate to new nodes.
        """
        writers = {acl.id for acl in acls if acl.perms & ~Permissions.READ}
        others = {each for each in writers if not (self.tls is not None and each.scheme == "x509")} - {self._identity()}
        return self._identity() in writers and not others

    def _identity(self) -> Id:
        if self.scheme is ZooKeeperScheme.DIGEST:
            return Id("digest", make_digest_acl_credential(self.username, self.password))
        return Id(self.scheme.value, self.username)


OPEN = ZooKeeperAccess()


def make_client(hosts: str, access: ZooKeeperAccess, **options: Any) -> KazooClient:
    """Return a client that is not started. Raise UnsupportedKazoo.

    Its attribute `refused` is True if the server refused the last log-in, or failed during it.
    """
    client = KazooClient(hosts, **options, **access.client_options())
    check(client)
    client.refused = False
    if access.scheme is ZooKeeperScheme.SASL:
        _try_again_when_refused(client)
    return client


def _try_again_when_refused(client: KazooClient) -> None:
    """Repeat failed log-ins: kazoo gives up after one, even if the server failed in the middle of it."""

    def log_in_or_try_again(log_in: LogIn) -> tuple[float, float]:
        try:
            answer = log_in()
        except AuthFailedError as error:
            client.refused = True
            raise ConnectionDropped(f"the log-in failed: {error}") from error
        client.refused = False
        return answer

    intercept_log_in(client, log_in_or_try_again)


class _TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Creates TLS connections with a given context, because kazoo reads certificates from files for each connection.

    `problem`: why the last connection failed, "" if it succeeded.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context
        self.problem = ""

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> ssl.SSLSocket:
        plain = socket.create_connection(address, timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            wrapped = self._context.wrap_socket(plain, server_hostname=hostname or address[0])
        except OSError as error:
            plain.close()
            self.problem = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
            raise
        self.problem = ""
        return wrapped


def opened(files: ZooKeeperAccessFiles) -> ZooKeeperAccess:
    """Read the files. Raise OSError, such as ssl.SSLError, for a file that cannot be read or used."""
    password = Path(files.password_file).read_text().strip() if files.password_file else ""
    return ZooKeeperAccess(files.scheme, files.username, password, _context(files) if files.uses_tls else None)


def _context(files: ZooKeeperAccessFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.authorities)
    if files.certificate is not None:
        # Without a password, OpenSSL would prompt for one on the terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
    return context
