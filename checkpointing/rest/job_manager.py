"""`/jobmanager`: this job manager's settings and the end of its log."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse

from checkpointing.jobs.settings import JobManagerSettings
from checkpointing.masking import mask_value
from checkpointing.rest.errors import RestError

LOG_NAME = "jobmanager.log"
LINES_KEPT = 5_000


class RecentLog(logging.Handler):
    """Keeps the last log lines, so that the log can be read without access to the machine."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self.changed_ms = 0
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        # Format a copy, because formatting changes the record, and other handlers would print the changes.
        self._lines.extend(self.format(copy.copy(record)).splitlines())
        self.changed_ms = round(record.created * 1000)

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    @contextmanager
    def attached(self) -> Iterator[None]:
        logger = logging.getLogger("checkpointing")
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)


class JobManagerHandlers:
    """Handlers for this process. Standbys answer, too."""

    def __init__(self, settings: JobManagerSettings, log: RecentLog) -> None:
        self._settings = settings
        self._log = log

    async def config(self, request: Request) -> JSONResponse:
        return JSONResponse([{"key": key, "value": value} for key, value in sorted(_described(self._settings))])

    async def log(self, request: Request) -> PlainTextResponse:
        return PlainTextResponse(self._log.text)

    async def logs(self, request: Request) -> JSONResponse:
        size = len(self._log.text.encode())
        return JSONResponse({"logs": [{"name": LOG_NAME, "size": size, "mtime": self._log.changed_ms}]})

    async def log_by_name(self, request: Request) -> PlainTextResponse:
        if request.path_params["name"] != LOG_NAME:
            raise RestError(404, f"There is no log {request.path_params['name']!r}; there is {LOG_NAME}.")
        return await self.log(request)


def _described(settings: JobManagerSettings) -> Iterator[tuple[str, str]]:
    """Yield the settings with the names of `JobManagerSettings`.

    Secrets are masked, and unset settings are left out.
    """
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value is not None and value != "":
            name = field.name.replace("_", "-")
            yield name, _text(value) if name.endswith("-file") else mask_value(name, _text(value))


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ",".join(str(each) for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
