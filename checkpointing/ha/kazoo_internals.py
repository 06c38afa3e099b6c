"""Private API of kazoo: the log-in at the start of each connection, and the creation of a TLS connection."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import kazoo
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler

_SUPPORTED = "2.11"

LogIn = Callable[[], tuple[float, float]]
"""Logs in. Returns two timeouts in milliseconds: one for an answer, and one after which kazoo leaves the server."""


class UnsupportedKazoo(Exception):
    """This kazoo lacks private API. The text names it, this version and the supported one."""


def check(client: KazooClient) -> None:
    """Raise UnsupportedKazoo if private API is missing. Fencing depends on it."""
    connection = getattr(client, "_connection", None)
    has = {
        "KazooClient._connection": connection is not None,
        "ConnectionHandler._connect": connection is None or hasattr(connection, "_connect"),
        "SequentialThreadingHandler.create_connection": hasattr(SequentialThreadingHandler, "create_connection"),
    }
    missing = [name for name, is_there in has.items() if not is_there]
    if missing:
        raise UnsupportedKazoo(
            f"kazoo {kazoo.__version__} lacks private API that Waymark uses: {', '.join(missing)}. "
            f"Install kazoo {_SUPPORTED}, which Waymark supports."
        )


def intercept_log_in(client: KazooClient, call: Callable[[LogIn], tuple[float, float]]) -> None:
    """Let `call` perform each log-in from now on.

    kazoo's public listeners get neither the timeout that the server granted nor the reason of a refusal.
    """
    connection: Any = client._connection
    connect = connection._connect
    connection._connect = lambda *arguments: call(partial(connect, *arguments))
