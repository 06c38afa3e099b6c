"""Map the failures of a connection to a reason that says what to check."""

from __future__ import annotations

import asyncio
import errno
import ssl

import aiohttp

from monitoring.engine.connection import Connection, trust
from monitoring.engine.errors import ConnectionFailure, Unreachable
from monitoring.outbound_http import AddressDenied, CheckedResolver, cluster_policy
from monitoring.reasons.addresses import AddressReason
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason

# OpenSSL's codes X509_V_ERR_… of the errors that a person can correct.
_CERTIFICATE = {
    9: EngineReason.NOT_VALID_YET(),
    10: EngineReason.EXPIRED(),
    18: EngineReason.SELF_SIGNED(),
    19: EngineReason.UNKNOWN_AUTHORITY(),
    20: EngineReason.UNKNOWN_AUTHORITY(),
    21: EngineReason.UNKNOWN_AUTHORITY(),
    23: EngineReason.REVOKED(),
}
_OTHER_HOST = (62, 64)
_CERTIFICATE_REQUIRED = (
    *("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN"),
)
_CONNECT_S, _LATE_ERROR_LIMIT_S = 3.0, 1.0
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_EOF", "PACKET_LENGTH")


def unreachable(base_url: str, error: Exception) -> Unreachable:
    kind, reason = _explained(base_url, error)
    return Unreachable(reason, kind)


async def read_late_tls_error(connection: Connection) -> Unreachable | None:
    """Return the TLS error that a server sends right after the handshake, None if it sends none.

    Since TLS 1.3 a server refuses a client's certificate only after the handshake. A client that writes at this time
    gets only a broken pipe.
    """
    target = connection.require_allowed()
    try:
        async with asyncio.timeout(_CONNECT_S):
            (found, *_) = await CheckedResolver(cluster_policy()).resolve(target.host, target.port)
            reader, writer = await asyncio.open_connection(
                found["host"], target.port, ssl=trust(connection.tls), server_hostname=target.host
            )
    except OSError as error:
        return unreachable(connection.url, error)
    try:
        await asyncio.wait_for(reader.read(1), _LATE_ERROR_LIMIT_S)
    except ssl.SSLError as error:
        return unreachable(connection.url, error)
    except (OSError, TimeoutError):
        pass
    finally:
        writer.close()
    return None


def _explained(url: str, error: Exception) -> tuple[ConnectionFailure, Reason]:
    tls = _tls_error(error)
    if isinstance(tls, ssl.SSLCertVerificationError):
        return ConnectionFailure.CERTIFICATE, EngineReason.BAD_CERTIFICATE(url=url, problem=_problem(tls))
    if tls is not None and any(mark in (tls.reason or "") for mark in _CERTIFICATE_REQUIRED):
        return ConnectionFailure.CLIENT_CERTIFICATE, EngineReason.CERTIFICATE_REQUIRED(url=url, words=_words(tls))
    if tls is not None and any(mark in (tls.reason or "") for mark in _NOT_TLS):
        return ConnectionFailure.NO_TLS, EngineReason.NOT_TLS(url=url)
    match error:
        case aiohttp.ClientConnectorDNSError(os_error=AddressDenied() as denied):
            return ConnectionFailure.NOT_ALLOWED, denied.denied.reason
        case aiohttp.ClientConnectorDNSError(os_error=cause, host=host):
            return ConnectionFailure.UNRESOLVED, AddressReason.UNRESOLVED(host=host, error=cause.strerror or str(cause))
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return ConnectionFailure.REFUSED, EngineReason.NOT_LISTENING(url=url)
        case aiohttp.ClientResponseError():
            code = EngineReason.NOT_HTTP_BUT_HTTPS if url.startswith("http://") else EngineReason.NOT_HTTP
            return ConnectionFailure.NO_HTTP, code(url=url)
        case aiohttp.ConnectionTimeoutError():
            return ConnectionFailure.TIMED_OUT, EngineReason.NOT_CONNECTED(url=url)
        case aiohttp.ServerDisconnectedError() | ConnectionResetError() | OSError(errno=errno.ECONNRESET):
            return ConnectionFailure.CLOSED_BY_SERVER, EngineReason.HUNG_UP(url=url)
        case aiohttp.ClientPayloadError():
            return ConnectionFailure.BROKEN, EngineReason.BROKE_OFF(url=url)
    is_connected = tls is not None or not isinstance(error, aiohttp.ClientConnectorError)
    kind = ConnectionFailure.BROKEN if is_connected else ConnectionFailure.NOT_CONNECTED
    return kind, EngineReason.NOT_REACHED(url=url, error=str(error))


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """Return the TLS error behind `error`. aiohttp's own classes have similar names, but are not TLS errors."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, aiohttp.ClientError):
            return error
        inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
        error = inner if isinstance(inner, BaseException) and inner is not error else error.__cause__
    return None


def _problem(error: ssl.SSLCertVerificationError) -> Reason:
    if error.verify_code in _OTHER_HOST:
        return EngineReason.OTHER_HOST(detail=error.verify_message.rstrip("."))
    return _CERTIFICATE.get(error.verify_code) or EngineReason.UNTRUSTED(detail=error.verify_message)


def _words(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
