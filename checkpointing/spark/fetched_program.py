"""Fetches the program from the leader, for a driver that shares no disk with its job manager."""

from __future__ import annotations

import http.client
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from checkpointing.clock import Clock
from checkpointing.jobs.launching.processes import SECRET_HEADER
from checkpointing.model.driver_spec import DriverSpec

log = logging.getLogger(__name__)

_LIMIT_S = 60.0
_TIMEOUT_S = 30.0
_RETRY_S = 0.5


class ProgramNotFetched(Exception):
    """No leader delivered the program within the limit, or a leader refused to."""


def fetch_program(
    spec: DriverSpec, find_leader: Callable[[float], str | None], token: str | None, clock: Clock
) -> None:
    """Write the job's program to the path in the specification. Raise ProgramNotFetched or OSError.

    While the leader changes, or cannot be reached, the request is repeated.
    """
    deadline = clock.monotonic() + _LIMIT_S
    while True:
        try:
            address = find_leader(_RETRY_S)
            content = None if address is None else _content(spec, address, token)
            problem = "no job manager is the leader"
        except (OSError, http.client.HTTPException) as error:
            content, problem = None, str(error)
        if content is not None:
            break
        if clock.monotonic() > deadline:
            raise ProgramNotFetched(f"The job's program could not be fetched from the job manager: {problem}")
        log.warning("the program cannot be fetched now: %s", problem)
        threading.Event().wait(_RETRY_S)
    path = Path(spec.program_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _content(spec: DriverSpec, address: str, token: str | None) -> bytes | None:
    """Return the program, or None if the job manager cannot serve the request now."""
    base = address if "://" in address else f"http://{address}"
    headers = {SECRET_HEADER: spec.secret, **({"Authorization": f"Bearer {token}"} if token else {})}
    path = f"/jobs/{spec.job_id}/attempts/{spec.attempt}/program"
    request = urllib.request.Request(base.rstrip("/") + path, headers=headers)  # noqa: S310  (the leader's address)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            if error.code >= 500:
                return None
            raise ProgramNotFetched(f"The job manager refused to send the job's program: HTTP {error.code}") from error
