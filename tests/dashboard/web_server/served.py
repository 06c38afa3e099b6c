"""An application for the tests of the web server, which echoes each request.

The arguments are the port and the limit of idle time in seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from dashboard.web_server import serve

LARGEST_BODY = 1 << 20


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length)
    text = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {len(body)}".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))])
    return [text]


if __name__ == "__main__":
    port, idle_limit_s = sys.argv[1:]
    serve(
        application,
        host="127.0.0.1",
        port=int(port),
        threads=2,
        largest_body=LARGEST_BODY,
        idle_limit_s=float(idle_limit_s),
    )
