"""Why nothing came back: the connection's failures, each as one sentence that says what to look at."""

from __future__ import annotations

import asyncio
import errno
import ssl

import aiohttp

from monitoring.engine.connection import Connection, trust
from monitoring.engine.errors import Trouble, Unreachable
from monitoring.outbound_http import AddressDenied, CheckedResolver, cluster_policy

# OpenSSL's X509_V_ERR_…: what a person can do something about.
_CERTIFICATE = {
    9: "is not valid yet; are the clocks right?",
    10: "has expired",
    18: "is self-signed; give it as the CA bundle to trust it",
    19: "comes from an authority that is not trusted; give its certificate as the CA bundle",
    20: "comes from an authority that is not trusted; give its certificate as the CA bundle",
    21: "comes from an authority that is not trusted; give its certificate as the CA bundle",
    23: "has been revoked",
    62: "is for another host",
    64: "is for another host",
}
_WANTS_A_CERTIFICATE = (
    *("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN"),
)
_CONNECT_S, _LISTEN_S = 3.0, 1.0
_SPEAKS_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_EOF", "PACKET_LENGTH")


def unreachable(base_url: str, error: Exception) -> Unreachable:
    trouble, sentence = _explained(base_url, error)
    return Unreachable(sentence, trouble)


async def heard_in_silence(connection: Connection) -> Unreachable | None:
    """What a server says that breaks off right after the handshake; None: nothing.

    Since TLS 1.3 it refuses a client's certificate only then, and who is writing meanwhile sees but a broken pipe.
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
        await asyncio.wait_for(reader.read(1), _LISTEN_S)
    except ssl.SSLError as error:
        return unreachable(connection.url, error)
    except (OSError, TimeoutError):
        pass
    finally:
        writer.close()
    return None


def _explained(url: str, error: Exception) -> tuple[Trouble, str]:
    tls = _tls_error(error)
    if isinstance(tls, ssl.SSLCertVerificationError):
        return Trouble.CERTIFICATE, f"The certificate of {url} {_about(tls)}."
    if tls is not None and any(mark in (tls.reason or "") for mark in _WANTS_A_CERTIFICATE):
        return Trouble.CLIENT_CERTIFICATE, f"{url} asks for a client's certificate that it trusts ({_words(tls)})."
    if tls is not None and any(mark in (tls.reason or "") for mark in _SPEAKS_NO_TLS):
        return Trouble.NO_TLS, f"{url} does not speak TLS; is it meant to be http://?"
    match error:
        case aiohttp.ClientConnectorDNSError(os_error=AddressDenied() as denied):
            return Trouble.NOT_ALLOWED, denied.denied.sentence
        case aiohttp.ClientConnectorDNSError(os_error=cause, host=host):
            return Trouble.UNRESOLVED, f"The name {host} does not resolve: {cause.strerror or cause}."
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return Trouble.REFUSED, f"{url} cannot be reached: nothing listens there."
        case aiohttp.ClientResponseError():
            hint = "; is it meant to be https://?" if url.startswith("http://") else "."
            return Trouble.NO_HTTP, f"{url} answers with something that is not HTTP{hint}"
        case aiohttp.ConnectionTimeoutError():
            return Trouble.TIMED_OUT, f"{url} cannot be reached: no connection came about in time."
        case aiohttp.ServerDisconnectedError() | ConnectionResetError() | OSError(errno=errno.ECONNRESET):
            return Trouble.HUNG_UP, f"{url} took the connection and hung up without an answer."
        case aiohttp.ClientPayloadError():
            return Trouble.BROKEN, f"{url} broke off in the middle of its answer."
    return Trouble.BROKEN, f"{url} cannot be reached: {error or type(error).__name__}"


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """The TLS failure behind an error, wherever the client put it: its own errors are named like one and are none."""
    while error is not None:
        if isinstance(error, ssl.SSLError) and not isinstance(error, aiohttp.ClientError):
            return error
        inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
        error = inner if isinstance(inner, BaseException) and inner is not error else error.__cause__
    return None


def _about(error: ssl.SSLCertVerificationError) -> str:
    known = _CERTIFICATE.get(error.verify_code)
    if known is None:
        return f"is not trusted: {error.verify_message}"
    detail = error.verify_message.rstrip(".")
    return f"{known} ({detail})" if error.verify_code in (62, 64) else known


def _words(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
