"""A small blocking client of the API, for the command line and for tests. It uses the standard library only."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]
NO_LEADER = 503  # while no job manager leads, or the leader does not know all jobs yet
_NO_SUCH_RANGE = 416


class JobManagerUnreachable(Exception):
    """No job manager answers at the address."""


class RequestRefused(Exception):
    """The job manager answered with an error: `status` and a text for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class JobManagerClient:
    """A client of the job manager at `address`, such as `http://127.0.0.1:8081`.

    Every call raises JobManagerUnreachable or RequestRefused.
    """

    def __init__(self, address: str, token: str | None = None, timeout_s: float = 30.0) -> None:
        if not address.startswith(("http://", "https://")):
            raise ValueError(f"{address!r} is not the address of a job manager; http://host:port is expected")
        self._address = address.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s

    def get(self, path: str) -> Json:
        return self._call("GET", path, None, "application/json")

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Json:
        return self._call("POST", path, json.dumps(body or {}).encode(), "application/json")

    def put(self, path: str, body: Mapping[str, Any]) -> Json:
        return self._call("PUT", path, json.dumps(body).encode(), "application/json")

    def get_content(self, path: str, start: int | None = None) -> bytes:
        """Return a file, or its content from byte `start` on: empty if the file is shorter."""
        headers = {} if start is None else {"Range": f"bytes={start}-"}
        try:
            return self._answer("GET", path, None, {"Accept": "text/plain", **headers})
        except RequestRefused as error:
            if error.status == _NO_SUCH_RANGE:
                return b""
            raise

    def upload(self, program: Path) -> str:
        """Upload a program and return its ID. Raise OSError if the file cannot be read."""
        boundary = uuid.uuid4().hex
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="jarfile"; filename="{program.name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        body = head.encode() + program.read_bytes() + f"\r\n--{boundary}--\r\n".encode()
        answer = self._call("POST", "/jars/upload", body, f"multipart/form-data; boundary={boundary}")
        return Path(answer["filename"]).name

    def run(self, jar_id: str, request: Mapping[str, Any]) -> str:
        """Start a job and return its ID. `request` has the form of Flink's `/jars/:id/run`."""
        return str(self.post(f"/jars/{urllib.parse.quote(jar_id)}/run", request)["jobid"])

    def delete_program(self, jar_id: str) -> None:
        self._call("DELETE", f"/jars/{urllib.parse.quote(jar_id)}", None, "application/json")

    def cancel(self, job_id: str) -> None:
        self._call("PATCH", f"/jobs/{job_id}?mode=cancel", b"", "application/json")

    def _call(self, method: str, path: str, body: bytes | None, content_type: str) -> Json:
        content = self._answer(method, path, body, {"Content-Type": content_type, "Accept": "application/json"})
        try:
            return dict(json.loads(content))
        except ValueError as error:
            raise JobManagerUnreachable(f"No job manager answers at {self._address}: {error}") from error

    def _answer(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        authorization = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        headers = {**headers, **authorization}
        request = urllib.request.Request(self._address + path, body, headers, method=method)  # noqa: S310  (http(s) only)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as response:  # noqa: S310
                return bytes(response.read())
        except urllib.error.HTTPError as error:
            with error:
                raise RequestRefused(error.code, _first_error(error.read())) from None
        except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise JobManagerUnreachable(f"No job manager answers at {self._address}: {reason}") from error


def _first_error(content: bytes) -> str:
    """Return the text for people in Flink's error form: the first line, without the class name."""
    try:
        text = str(json.loads(content)["errors"][-1])
    except (ValueError, KeyError, IndexError, TypeError):
        return content.decode(errors="replace")[:500] or "no reason given"
    first = text.removeprefix("<Exception on server side:\n").partition("\n")[0]
    name, colon, rest = first.partition(": ")
    return rest if colon and name.startswith("org.apache.flink.") else first
