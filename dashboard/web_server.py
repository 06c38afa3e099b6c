"""The web server: waitress, which collects a whole request before one of its threads serves it.

A client that sends half a request, or is slow to take its response, holds a connection and no thread (decision 130).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from typing import Any

import waitress

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

MEBIBYTE = 1 << 20
# Bytes of a body that a caller without a log-in may send: room for every form that needs none.
LARGEST_ANONYMOUS_BODY = 64 * 1024
# As long as proxies and API clients keep idle connections, so that none sends a request into a connection that closes.
IDLE_LIMIT_S = 75
# A connection takes a file descriptor, and 1,024 of them are a common limit.
MOST_CONNECTIONS = 500


def serve(
    application: Application,
    *,
    host: str,
    port: int,
    threads: int,
    largest_body: int,
    idle_limit_s: float = IDLE_LIMIT_S,
) -> None:
    """Serve `application` until SIGTERM or SIGINT; requests that are being served end first, within five seconds.

    `largest_body` is in bytes. A larger one is answered with 413 and not read. Raises OSError when the address is
    taken.
    """
    server = waitress.create_server(
        application,
        host=host,
        port=port,
        threads=threads,
        ident=None,
        max_request_body_size=largest_body + 1,
        channel_timeout=idle_limit_s,
        cleanup_interval=min(idle_limit_s, 30),
        connection_limit=MOST_CONNECTIONS,
        asyncore_use_poll=True,
        clear_untrusted_proxy_headers=False,  # Waymark reads them itself (WAYMARK_TRUSTED_PROXIES)
    )
    signal.signal(signal.SIGTERM, _stop)
    server.run()


def _stop(*_: object) -> None:
    """End waitress's loop."""
    raise SystemExit
