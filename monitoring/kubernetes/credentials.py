"""The connection to a Kubernetes API: from a kubeconfig that a person has entered, or from the pod's service account.

A kubeconfig may name programs to run and files to read. Waymark does neither for a person at a web page, so only fields
that contain the value itself are allowed.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

import yaml

from checkpointing.jobs.launching.kubernetes.api import ApiAccess, is_installed
from monitoring.engine.connection import BadTls, Connection, Tls, basic, bearer, trust
from monitoring.engine.errors import RequestNotSent
from monitoring.kubernetes.kinds import Json
from monitoring.models import DiscoverySource
from monitoring.reasons.credentials import CredentialReason
from monitoring.reasons.discoveries import DiscoveryReason
from monitoring.secret import SecretUnreadable

LARGEST = 100_000
LIMIT_S = 15.0
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_SERVER = ("server", "certificate-authority-data")
_USER = ("token", "client-certificate-data", "client-key-data", "username", "password")
# Fields that change nothing here.
_HARMLESS = frozenset({"extensions", "disable-compression"})


def connection_of(source: DiscoverySource, account: Path = SERVICE_ACCOUNT) -> Connection:
    """Return the connection. The token of a service account is read each time, because Kubernetes replaces it.

    Raises:
        RequestNotSent: there are no credentials, they cannot be used, or the extra `kubernetes` is not installed.
    """
    if not is_installed():
        raise RequestNotSent(DiscoveryReason.EXTRA_MISSING())
    if source.in_cluster:
        return _mounted(account)
    try:
        return read_kubeconfig(source.kubeconfig.reveal())
    except SecretUnreadable as error:
        raise RequestNotSent(CredentialReason.UNREADABLE(server=source.name, why=error.reason)) from error


def read_kubeconfig(text: str) -> Connection:
    """Return the connection of the current context. Raise RequestNotSent with the field and what is allowed there."""
    if len(text.encode()) > LARGEST:
        raise RequestNotSent(DiscoveryReason.TOO_LARGE(size=len(text.encode()), most=LARGEST))
    try:
        config = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RequestNotSent(DiscoveryReason.NOT_YAML()) from error
    if not isinstance(config, dict):
        raise RequestNotSent(DiscoveryReason.NOT_YAML())
    context = _entry(config, "context", _text(config, "current-context", "current-context"))
    cluster_name, user_name = (_text(context, f"context.{name}", name) for name in ("cluster", "user"))
    cluster = _entry(config, "cluster", cluster_name)
    user = _entry(config, "user", user_name) if user_name else {}
    _require_only(cluster, "cluster", _SERVER)
    _require_only(user, "user", _USER)
    if not (server := _text(cluster, "cluster.server", "server")):
        raise RequestNotSent(DiscoveryReason.FIELD_MISSING(field="cluster.server"))
    certificates = (
        _pem(cluster, "cluster", "certificate-authority-data"),
        *(_pem(user, "user", f"client-{name}-data") for name in ("certificate", "key")),
    )
    token, name, password = (_text(user, f"user.{field}", field) for field in ("token", "username", "password"))
    authorization = bearer(token) if token else basic(name, password) if name else ""
    return _checked(Connection(server.rstrip("/"), authorization, Tls(*certificates), LIMIT_S))


def _mounted(account: Path) -> Connection:
    try:
        access = ApiAccess.in_cluster(os.environ, account)
        if access is None or access.token_file is None or access.authorities_file is None:
            raise RequestNotSent(DiscoveryReason.IN_NO_CLUSTER())
        token, authorities = access.token_file.read_text().strip(), access.authorities_file.read_text()
    except OSError as error:
        raise RequestNotSent(DiscoveryReason.IN_NO_CLUSTER()) from error
    return _checked(Connection(access.address, bearer(token), Tls(authorities), LIMIT_S))


def _checked(connection: Connection) -> Connection:
    connection.require_allowed()
    try:
        trust(connection.tls)
    except BadTls as error:
        raise RequestNotSent(DiscoveryReason.BAD_TLS(why=error.reason)) from error
    return connection


def _entry(config: Json, kind: str, name: str) -> Json:
    """Return the context, cluster or user with this name."""
    entries = config.get(f"{kind}s")
    for each in entries if isinstance(entries, list) else ():
        if isinstance(each, dict) and each.get("name") == name and isinstance(each.get(kind), dict):
            return dict(each[kind])
    raise RequestNotSent(DiscoveryReason.NOT_NAMED(name=name, field=f"{kind}s"))


def _require_only(entry: Json, kind: str, allowed: tuple[str, ...]) -> None:
    for name, value in entry.items():
        is_off = name == "insecure-skip-tls-verify" and value is False
        if name not in allowed and name not in _HARMLESS and not is_off:
            shown = f"{kind}.{str(name)[:60]}"
            raise RequestNotSent(DiscoveryReason.FIELD_REFUSED(field=shown, allowed=", ".join(allowed)))


def _text(entry: Json, field: str, name: str) -> str:
    value = entry.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or not value.isprintable():
        raise RequestNotSent(DiscoveryReason.NOT_A_TEXT(field=field))
    return value.strip()


def _pem(entry: Json, kind: str, name: str) -> str:
    field = f"{kind}.{name}"
    text = entry.get(name)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise RequestNotSent(DiscoveryReason.NOT_A_TEXT(field=field))
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise RequestNotSent(DiscoveryReason.NOT_BASE64(field=field)) from error
