"""The web server waitress, which receives a whole request before one of its threads serves it.

A client that sends slowly or reads its response slowly occupies a connection, but no thread (decision 130).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from typing import Any

import waitress

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

MEBIBYTE = 1 << 20
# The largest body in bytes of a client that is not logged in. Every form without log-in is smaller.
LARGEST_ANONYMOUS_BODY = 64 * 1024
# At least as long as proxies and API clients keep idle connections, so that no request meets a closing connection.
IDLE_LIMIT_S = 75
# Each connection needs a file descriptor, and a common limit is 1,024 of them.
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
    """Serve `application` until SIGTERM or SIGINT, and then wait up to five seconds for current requests.

    A body with more than `largest_body` bytes is refused with status 413 and not read.

    Raises:
        OSError: The address is in use.
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
        clear_untrusted_proxy_headers=False,  # Waymark reads the proxy headers itself (WAYMARK_TRUSTED_PROXIES)
    )
    signal.signal(signal.SIGTERM, _stop)
    server.run()


def _stop(*_: object) -> None:
    """Raise SystemExit, which ends waitress's loop."""
    raise SystemExit
