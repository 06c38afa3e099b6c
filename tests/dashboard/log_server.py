"""A fake job manager that serves the logs of one run, as tested in tests/checkpointing/rest/test_driver_logs.py."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from urllib.parse import unquote

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from monitoring.models import Run


class LogServer:
    """The server. `logs` has the content of each log by name. Attempts start one minute after one another."""

    def __init__(self, server: HTTPServer, run: Run, now: datetime) -> None:
        self.logs: dict[str, bytes] = {}
        self.first_failure = 1
        self._now = now
        below = re.escape(f"/jobs/{run.engine_job_id}/logs")
        server.expect_request(f"/jobs/{run.engine_job_id}/logs").respond_with_handler(self._list)
        for path, handler in (("", self._read), ("/search", self._search), ("/position", self._position)):
            server.expect_request(re.compile(f"^{below}/[^/]+{path}$")).respond_with_handler(handler)

    def started(self, attempt: int) -> datetime:
        return self._now - timedelta(minutes=10 - attempt)

    def _list(self, request: Request) -> Response:
        found = [self._described(name) for name in sorted(self.logs, reverse=True)]
        return _json({"logs": found})

    def _described(self, name: str) -> dict[str, object]:
        attempt = int(name.removeprefix("driver-").partition(".")[0])
        times = {"start-time": _ms(self.started(attempt)), "mtime": _ms(self._now)}
        facts = {"first-failure": attempt == self.first_failure, "elsewhere": None}
        return {"name": name, "attempt": attempt, "size": len(self.logs[name]), **times, **facts}

    def _read(self, request: Request) -> Response:
        content = self.logs[_name(request, -1)]
        first, last = request.headers["Range"].removeprefix("bytes=").split("-")
        start = max(0, len(content) - int(last)) if not first else int(first)
        part = content[start:] if not first else content[start : int(last) + 1]
        if not part:
            return Response(status=416, headers={"Content-Range": f"bytes */{len(content)}"})
        span = f"bytes {start}-{start + len(part) - 1}/{len(content)}"
        return Response(part, 206, {"Content-Range": span, "Content-Type": "text/plain"})

    def _search(self, request: Request) -> Response:
        content, wanted = self.logs[_name(request, -2)].decode(), request.args["text"].lower()
        lines = [(match.start(), match[0]) for match in re.finditer("[^\n]+", content)]
        matches = [{"offset": offset, "line": line} for offset, line in lines if wanted in line.lower()]
        return _json({"matches": matches, "truncated": False})

    def _position(self, request: Request) -> Response:
        """Return the position of the line with "at the moment", instead of comparing times."""
        before, _, _ = self.logs[_name(request, -2)].partition(b"at the moment")
        return _json({"offset": before.rfind(b"\n") + 1})


def _json(answer: object) -> Response:
    return Response(json.dumps(answer), content_type="application/json")


def _name(request: Request, place: int) -> str:
    return unquote(request.path.split("/")[place])


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
