"""Test a cluster's settings before they are stored: return what answers, or the wrong field and the reason.

The test sends requests to the engine, and to ZooKeeper if the cluster is found through it. It takes seconds if nothing
answers. It writes nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from monitoring import outbound
from monitoring.engine import leaders
from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import (
    AddressNotAllowed,
    BadTls,
    Connection,
    SecretMissing,
    connection_of,
    connection_of_history_server,
    trust,
)
from monitoring.engine.errors import (
    ConnectionFailure,
    EngineError,
    Malformed,
    NotFound,
    NotReady,
    Redirected,
    Refused,
    RequestNotSent,
    RootUnreadable,
    Unreachable,
)
from monitoring.engine.probe import Found, found_reports, probe
from monitoring.engine.silence import read_late_tls_error
from monitoring.engine.zookeeper import Nobody, find_leader
from monitoring.models import Authentication, Cluster, Discovery
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason

Now = Callable[[], datetime]

# A short limit, because a person waits for the answer.
LIMIT_S = 8.0
# Problems that a CA bundle solves.
_UNTRUSTED = (EngineReason.SELF_SIGNED(), EngineReason.UNKNOWN_AUTHORITY())


@dataclass(frozen=True)
class Problem:
    """A failed test. `field` is the cluster's field to correct. `passing`: perhaps only the server is down."""

    field: str
    reason: Reason | str
    passing: bool = False


def examine(cluster: Cluster, now: Now) -> Found | Problem:
    """Test the connection of `cluster`, stored or not. With ZooKeeper, set its `rest_url` to the leader's."""
    if cluster.discovery == Discovery.ZOOKEEPER:
        try:
            leader = find_leader(leaders.quorum_of(cluster), LIMIT_S)
        except RequestNotSent as error:
            return problem_of(cluster, error)
        leaders.note(cluster, leader, now())
        if isinstance(leader, Nobody):
            return Problem("zookeeper_hosts", leader.why, passing=True)
    if cluster.discovery == Discovery.AGENT:
        return found_reports(cluster)
    try:
        connection = connection_of(cluster)
        if not connection.is_storage:
            connection.require_allowed()
        trust(connection.tls)
    except BadTls as error:
        return Problem(error.field, error.reason)
    except RequestNotSent as error:
        return problem_of(cluster, error)
    try:
        found = asyncio.run(_ask(connection, now))
    except EngineError as error:
        return problem_of(cluster, error)
    if problem := _history_problem(cluster):
        return problem
    return replace(found, remarks=(*found.remarks, *remarks_on(cluster)))


def remarks_on(cluster: Cluster) -> list[Reason]:
    """Return a warning for each server that gets a secret of the cluster without TLS."""
    return unencrypted_secrets(cluster.authentication, (cluster.rest_url, cluster.history_server))


def unencrypted_secrets(authentication: str, urls: Iterable[str]) -> list[Reason]:
    """Return a warning for each other machine to which a token or password is sent without TLS."""
    found = (unencrypted_secret(authentication, url) for url in urls)
    return [remark for remark in found if remark is not None]


def unencrypted_secret(authentication: str, url: str) -> Reason | None:
    """Return a reason when a token or password is sent to another machine without TLS, else None."""
    target = outbound.parse(url)
    if isinstance(target, outbound.Denied) or target.scheme == "https" or outbound.is_this_machine(target.host):
        return None
    match authentication:
        case Authentication.BEARER:
            return EngineReason.TOKEN_UNENCRYPTED(host=target.host)
        case Authentication.BASIC:
            return EngineReason.PASSWORD_UNENCRYPTED(host=target.host)
    return None


async def _ask(connection: Connection, now: Now) -> Found:
    # With a stored scan, the test would skip what was found before. It stores nothing.
    connection = replace(connection, scan={}, reported_for=None)
    limit_s = min(LIMIT_S, connection.request_limit_s)
    try:
        async with FlinkClient(connection, read_limit_s=limit_s) as client:
            return await probe(client, now)
    except Unreachable as error:
        broken = error.kind in (ConnectionFailure.BROKEN, ConnectionFailure.CLOSED_BY_SERVER)
        if not broken or not connection.url.startswith("https://"):
            raise
        raise await read_late_tls_error(connection) or error from error


def _history_problem(cluster: Cluster) -> Problem | None:
    """Return why the cluster's History Server cannot be used, None if it can or if the cluster has none."""
    if not cluster.history_server:
        return None
    try:
        connection = connection_of_history_server(cluster)
        connection.require_allowed()
        is_history = asyncio.run(_is_history(connection))
    except NotFound:
        is_history = False
    except EngineError as error:
        return problem_of(cluster, error, "history_server")
    return None if is_history else Problem("history_server", EngineReason.NO_HISTORY_SERVER())


async def _is_history(connection: Connection) -> bool:
    async with FlinkClient(connection, read_limit_s=min(LIMIT_S, connection.request_limit_s)) as client:
        return (await client.web_config()).is_history


def problem_of(cluster: Cluster, error: EngineError, at: str = "") -> Problem:
    """Return the problem with the cluster's field that caused the error: `at`, "" for its address."""
    at = at or ("zookeeper_cluster_id" if cluster.discovery == Discovery.ZOOKEEPER else "rest_url")
    match error:
        case AddressNotAllowed():
            return Problem(at, error.reason)
        case SecretMissing(field=field):
            return Problem(field, error.reason)
        case RequestNotSent():
            return Problem(at, error.reason)
        case RootUnreadable():
            return Problem(at, error.reason, passing=True)
        case NotReady():
            return Problem(at, EngineReason.NOT_READY(why=error.reason), passing=True)
        case Unreachable(kind=ConnectionFailure.CLOSED_BY_SERVER) if getattr(cluster, at, "").startswith("http://"):
            return Problem(at, EngineReason.HUNG_UP_BUT_HTTPS(why=error.reason), passing=True)
        case Unreachable(kind=kind):
            return Problem(_field_of(kind, error, at), error.reason, passing=kind in _PASSING)
        case Refused():
            return _refused(cluster, at, error)
        case NotFound():
            return Problem(at, EngineReason.NO_OVERVIEW())
        case Malformed():
            return Problem(at, EngineReason.NOT_FLINK(why=error.reason))
    return Problem(at, error.reason)


_PASSING = (
    ConnectionFailure.REFUSED,
    ConnectionFailure.NOT_CONNECTED,
    ConnectionFailure.TIMED_OUT,
    ConnectionFailure.UNRESOLVED,
    ConnectionFailure.CLOSED_BY_SERVER,
    ConnectionFailure.BROKEN,
)
_LOG_IN = re.compile(r"log-?in|sign-?in|oauth|saml|\bsso\b", re.IGNORECASE)


def _refused(cluster: Cluster, at: str, error: Refused) -> Problem:
    match error:
        case Redirected(location=location) if _LOG_IN.search(location):
            return Problem(at, EngineReason.LOG_IN_PAGE(location=location[:300]))
        case Redirected():
            return Problem(at, error.reason)
        case Refused(status=401 | 403 as status):
            return _login_refused(cluster, status)
        case Refused(status=502 | 504 as status):
            return Problem(at, EngineReason.BEHIND_PROXY(status=status), passing=True)
        case Refused(status=status) if status >= 500:
            return Problem(at, EngineReason.SERVER_ERROR(why=error.reason), passing=True)
    return Problem(at, EngineReason.NOT_FLINK(why=error.reason))


def _field_of(kind: ConnectionFailure, error: EngineError, at: str) -> str:
    match kind:
        case ConnectionFailure.CERTIFICATE if (
            isinstance(error.reason, Reason) and error.reason.args["problem"] in _UNTRUSTED
        ):
            return "ca_bundle"
        case ConnectionFailure.CLIENT_CERTIFICATE:
            return "client_certificate"
    return at


def _login_refused(cluster: Cluster, status: int) -> Problem:
    match cluster.authentication:
        case Authentication.BEARER:
            return Problem("token", EngineReason.TOKEN_REFUSED(status=status))
        case Authentication.BASIC:
            return Problem("password", EngineReason.PASSWORD_REFUSED(status=status))
    return Problem("authentication", EngineReason.LOG_IN_NEEDED(status=status))
