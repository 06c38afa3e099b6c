"""What the web server's tests serve: says what arrived. WAYMARK_TEST_REQUEST_LIMIT shortens the worker's patience."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from dashboard.web_server import worker

worker.REQUEST_LIMIT_S = float(os.environ.get("WAYMARK_TEST_REQUEST_LIMIT", worker.REQUEST_LIMIT_S))


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length) if environ["PATH_INFO"] != "/unread" else b""
    text = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {len(body)}".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))])
    return [text]
