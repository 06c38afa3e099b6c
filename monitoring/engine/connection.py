"""How a cluster is asked: everything a client needs, as one frozen value that shows no secret.

    async with FlinkClient(connection_of(cluster)) as engine: …

The address is judged here and again where the name is resolved (`outbound_http.CheckedResolver`), so what is connected
to is what is allowed.
"""

from __future__ import annotations

import base64
import os
import secrets
import ssl
import tempfile
from dataclasses import dataclass, field
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
from monitoring.engine.errors import NotAsked
from monitoring.models import Authentication, Cluster, Discovery
from monitoring.outbound import Denied, Target
from monitoring.outbound_http import cluster_policy
from monitoring.reasons.columns import stored
from monitoring.reasons.credentials import CredentialReason
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason
from monitoring.secret import SecretUnreadable

REQUEST_LIMIT_S = 10.0


class BadTls(ValueError):
    """A certificate or key that cannot be used; `field` is the cluster's field."""

    def __init__(self, at: str, reason: Reason) -> None:
        super().__init__(str(reason))
        self.field, self.reason = at, reason


@dataclass(frozen=True)
class Tls:
    """PEM texts. "": the system's authorities; no certificate of our own."""

    ca_bundle: str = ""
    certificate: str = ""
    key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Connection:
    """`authorization` is the header's value, "" for none."""

    url: str
    authorization: str = field(default="", repr=False)
    tls: Tls = Tls()
    request_limit_s: float = REQUEST_LIMIT_S

    def require_allowed(self) -> Target:
        """Raises AddressNotAllowed for what is no URL, and for an address that is written out and not allowed."""
        target = outbound.target_of(self.url, cluster_policy())
        if isinstance(target, Denied):
            raise AddressNotAllowed(target)
        return target


class AddressNotAllowed(NotAsked):
    def __init__(self, denied: Denied) -> None:
        super().__init__(denied.reason)
        self.denied = denied


class SecretMissing(NotAsked):
    """`field`: the cluster's whose secret cannot be read."""

    def __init__(self, reason: Reason, at: str) -> None:
        super().__init__(reason)
        self.field = at


def bearer(token: str) -> str:
    return f"Bearer {token}"


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def connection_of(cluster: Cluster) -> Connection:
    """Raises NotAsked when a secret cannot be read, or when nobody knows yet where the cluster's leader is."""
    if not cluster.rest_url and cluster.discovery == Discovery.ZOOKEEPER:
        why = stored(cluster, "leader_problem") or EngineReason.ZOOKEEPER_NOT_ASKED()
        raise NotAsked(EngineReason.LEADER_UNKNOWN(cluster=str(cluster), why=why))
    try:
        return Connection(
            cluster.rest_url.rstrip("/"),
            _authorization(cluster),
            Tls(cluster.ca_bundle, cluster.client_certificate, cluster.client_key.reveal()),
            cluster.request_limit_s,
        )
    except SecretUnreadable as error:
        reason = CredentialReason.UNREADABLE(server=str(cluster), why=error.reason)
        raise SecretMissing(reason, _unreadable(cluster)) from error


def zookeeper_access_of(cluster: Cluster) -> ZooKeeperAccess:
    """Raises NotAsked, with the field, when a secret cannot be read or a certificate cannot be used."""
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


def _authorization(cluster: Cluster) -> str:
    match cluster.authentication:
        case Authentication.BASIC:
            return basic(cluster.username, cluster.password.reveal())
        case Authentication.BEARER:
            return bearer(cluster.token.reveal())
    return ""


@lru_cache(maxsize=256)
def trust(tls: Tls) -> ssl.SSLContext:
    """Once per process and setting: reading the certificates takes longer than a poll. Raises BadTls."""
    context = ssl.create_default_context()
    if tls.ca_bundle:
        # A bundle of one's own means these authorities and no others.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            # What is between the certificates may be in any script.
            context.load_verify_locations(cadata=tls.ca_bundle.encode("ascii", "ignore").decode())
        except ssl.SSLError as error:
            reason = CredentialReason.BAD_CA_BUNDLE(error=error.reason or str(error))
            raise BadTls("ca_bundle", reason) from error
    if tls.certificate or tls.key:
        _present(context, tls)
    return context


def _present(context: ssl.SSLContext, tls: Tls) -> None:
    """The client's certificate. Python reads keys from files only: it goes there encrypted, and away again at once."""
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
    handle, name = tempfile.mkstemp()  # for our user's eyes only
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(tls.certificate.encode() + b"\n" + key.private_bytes(*form))
        context.load_cert_chain(name, password=password)
    except ssl.SSLError as error:
        reason = CredentialReason.PAIR_MISMATCH(error=error.reason or str(error))
        raise BadTls("client_key", reason) from error
    finally:
        Path(name).unlink()
