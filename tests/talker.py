"""A server of lines of text, as Spark's examples expect it instead of netcat."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LINE, EVERY_S = b"to be or not to be\n", 0.2


@contextmanager
def talker() -> Iterator[int]:
    """Yield the port of a server that repeatedly sends a few words to each client."""
    over = threading.Event()

    def talk(connection: socket.socket) -> None:
        with connection:
            try:
                while not over.wait(EVERY_S):
                    connection.sendall(LINE)
            except OSError:
                return

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=[connection], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        over.set()
