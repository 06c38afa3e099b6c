"""The connection to a cluster: all that a client needs, as one frozen value that shows no secret.

    async with FlinkClient(connection_of(cluster)) as engine: …

The policy for addresses is checked here, and again when the name is resolved (`outbound_http.CheckedResolver`). So a
client connects only to allowed addresses.
"""

from __future__ import annotations

import base64
import os
import secrets
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from checkpointing.ha.zookeeper_access import ZooKeeperAccess
from checkpointing.model.zookeeper_access import ZooKeeperScheme
from monitoring import outbound
from monitoring.engine.errors import RequestNotSent
from monitoring.models import Authentication, Cluster, Discovery, DiscoverySource
from monitoring.outbound import Denied, Target
from monitoring.outbound_http import cluster_policy
from monitoring.reasons.columns import stored
from monitoring.reasons.credentials import CredentialReason
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason
from monitoring.secret import SecretUnreadable

REQUEST_LIMIT_S = 10.0


class BadTls(ValueError):
    """A certificate or key cannot be used. `field` is the name of the cluster's field."""

    def __init__(self, at: str, reason: Reason) -> None:
        super().__init__(str(reason))
        self.field, self.reason = at, reason


@dataclass(frozen=True)
class Tls:
    """PEM texts. An empty `ca_bundle` means the system's authorities, an empty `certificate` no client certificate."""

    ca_bundle: str = ""
    certificate: str = ""
    key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Connection:
    """The URL, credentials and limits for requests. `authorization` is the header's value, "" for none."""

    url: str
    authorization: str = field(default="", repr=False)
    tls: Tls = Tls()
    request_limit_s: float = REQUEST_LIMIT_S
    # `url` is a directory of checkpoint locations, which engine.watched reads. `scan`: the stored progress of its scan.
    # `saves_to`: the directory for savepoints, "" for none. `saves_for`: the key of the cluster, if it is stored.
    is_directory: bool = False
    saves_to: str = ""
    saves_for: int | None = None
    scan: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    # `url` is a directory of event logs. `scan`: how far they were read.
    has_event_logs: bool = False
    # The key of the cluster whose queries the agent or event logs report, which engine.reported reads. None: another
    # cluster, or one that is not stored.
    reported_for: int | None = None

    @property
    def is_storage(self) -> bool:
        """Return whether `url` is a directory."""
        return self.is_directory or self.has_event_logs

    def require_allowed(self) -> Target:
        """Return the target of the URL.

        Raises:
            AddressNotAllowed: the text is not a URL, or it has a literal IP address that is not allowed.
        """
        target = outbound.target_of(self.url, cluster_policy())
        if isinstance(target, Denied):
            raise AddressNotAllowed(target)
        return target


class AddressNotAllowed(RequestNotSent):
    def __init__(self, denied: Denied) -> None:
        super().__init__(denied.reason)
        self.denied = denied


class SecretMissing(RequestNotSent):
    """A secret or certificate of the cluster cannot be used. `field` is the name of its field."""

    def __init__(self, reason: Reason, at: str) -> None:
        super().__init__(reason)
        self.field = at


def bearer(token: str) -> str:
    return f"Bearer {token}"


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def connection_of(cluster: Cluster) -> Connection:
    """Return the connection.

    Raise RequestNotSent if a secret cannot be read, or if the leader's address is not known yet.
    """
    if cluster.discovery == Discovery.AGENT:
        return Connection("", request_limit_s=cluster.request_limit_s, reported_for=cluster.pk)
    if cluster.only_watched:
        limit_s = cluster.request_limit_s
        if cluster.discovery == Discovery.EVENT_LOG:
            address, scan = cluster.rest_url, cluster.scan
            return Connection(address, request_limit_s=limit_s, scan=scan, has_event_logs=True, reported_for=cluster.pk)
        watched = Connection(cluster.rest_url, request_limit_s=limit_s, is_directory=True, scan=cluster.scan)
        return replace(watched, saves_to=cluster.savepoint_target, saves_for=cluster.pk)
    if not cluster.rest_url and cluster.discovery == Discovery.ZOOKEEPER:
        why = stored(cluster, "leader_problem") or EngineReason.ZOOKEEPER_NOT_ASKED()
        raise RequestNotSent(EngineReason.LEADER_UNKNOWN(cluster=str(cluster), why=why))
    return _server(cluster, cluster.rest_url)


def connection_of_history_server(cluster: Cluster) -> Connection:
    """Return the connection to the cluster's History Server, with the credentials and certificates of the cluster.

    Raise RequestNotSent if a secret cannot be read.
    """
    return _server(cluster, cluster.history_server)


def _server(cluster: Cluster, url: str) -> Connection:
    try:
        return Connection(
            url.rstrip("/"),
            authorization_of(cluster),
            Tls(cluster.ca_bundle, cluster.client_certificate, cluster.client_key.reveal()),
            cluster.request_limit_s,
        )
    except SecretUnreadable as error:
        reason = CredentialReason.UNREADABLE(server=str(cluster), why=error.reason)
        raise SecretMissing(reason, _unreadable(cluster)) from error


def zookeeper_access_of(cluster: Cluster) -> ZooKeeperAccess:
    """Return the access to ZooKeeper.

    Raises:
        SecretMissing: a secret cannot be read or a certificate cannot be used. It has the field's name.
    """
    tls = None
    try:
        if cluster.zookeeper_tls:
            tls = trust(Tls(cluster.ca_bundle, cluster.client_certificate, cluster.client_key.reveal()))
        scheme = ZooKeeperScheme(cluster.zookeeper_authentication)
        return ZooKeeperAccess(scheme, cluster.zookeeper_username, cluster.zookeeper_password.reveal(), tls)
    except SecretUnreadable as error:
        at = "zookeeper_password" if cluster.zookeeper_password.problem() else "client_key"
        raise SecretMissing(CredentialReason.UNREADABLE(server="ZooKeeper", why=error.reason), at) from error
    except BadTls as error:
        raise SecretMissing(error.reason, error.field) from error


def _unreadable(cluster: Cluster) -> str:
    secrets = {"token": cluster.token, "password": cluster.password, "client_key": cluster.client_key}
    return next((name for name, secret in secrets.items() if secret.problem()), "token")


def authorization_of(server: Cluster | DiscoverySource) -> str:
    """Return the value of the header, "" for none. Raise SecretUnreadable."""
    match server.authentication:
        case Authentication.BASIC:
            return basic(server.username, server.password.reveal())
        case Authentication.BEARER:
            return bearer(server.token.reveal())
    return ""


@lru_cache(maxsize=256)
def trust(tls: Tls) -> ssl.SSLContext:
    """Return the TLS context. It is cached, because loading certificates takes longer than a poll. Raise BadTls."""
    context = ssl.create_default_context()
    if tls.ca_bundle:
        # A bundle replaces the system's authorities.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            # Text between the certificates may have characters that are not ASCII.
            context.load_verify_locations(cadata=tls.ca_bundle.encode("ascii", "ignore").decode())
        except ssl.SSLError as error:
            reason = CredentialReason.BAD_CA_BUNDLE(error=error.reason or str(error))
            raise BadTls("ca_bundle", reason) from error
    if tls.certificate or tls.key:
        _present(context, tls)
    return context


def _present(context: ssl.SSLContext, tls: Tls) -> None:
    """Load the client's certificate and key into `context`.

    Python reads keys only from files. So the key is written to an encrypted temporary file, which is deleted at once.
    """
    if not tls.certificate or not tls.key:
        missing = "client_key" if tls.certificate else "client_certificate"
        raise BadTls(missing, CredentialReason.PAIR_INCOMPLETE())
    try:
        x509.load_pem_x509_certificates(tls.certificate.encode())
    except ValueError as error:
        raise BadTls("client_certificate", CredentialReason.BAD_CERTIFICATE()) from error
    try:
        key: Any = load_pem_private_key(tls.key.encode(), None)
    except (ValueError, TypeError) as error:
        code = CredentialReason.KEY_ENCRYPTED if isinstance(error, TypeError) else CredentialReason.BAD_KEY
        raise BadTls("client_key", code()) from error
    password = secrets.token_hex()
    form = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
    handle, name = tempfile.mkstemp()  # only this process's user can read the file
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(tls.certificate.encode() + b"\n" + key.private_bytes(*form))
        context.load_cert_chain(name, password=password)
    except ssl.SSLError as error:
        reason = CredentialReason.PAIR_MISMATCH(error=error.reason or str(error))
        raise BadTls("client_key", reason) from error
    finally:
        Path(name).unlink()
