"""The logs of a PySpark job's drivers. Only Waymark's job manager serves them by job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from monitoring.engine.fields import Fields
from monitoring.reasons.reason import Reason, from_json


@dataclass(frozen=True)
class DriverLog:
    """A log file. `elsewhere` says where the rest of the log is, "" if this file is all.

    It is a text if this version does not know the job manager's code for it.
    """

    name: str
    attempt: int
    size: int
    started_at: datetime
    changed_at: datetime
    is_first_failure: bool
    elsewhere: Reason | str

    @property
    def is_cut(self) -> bool:
        """Whether the file has the end of the part that was cut from a too large log."""
        return self.name.endswith(".1")

    @classmethod
    def parse(cls, fields: Fields) -> DriverLog:
        return cls(
            name=fields.text("name"),
            attempt=fields.whole("attempt"),
            size=fields.whole("size"),
            started_at=fields.moment("start-time"),
            changed_at=fields.moment("mtime"),
            is_first_failure=fields.flag("first-failure", default=False),
            elsewhere=_elsewhere(fields),
        )


def _elsewhere(fields: Fields) -> Reason | str:
    code = f"engines.logs-{fields.optional_text('elsewhere-code')}"
    return from_json({"code": code, "args": {}}) or fields.optional_text("elsewhere")


@dataclass(frozen=True)
class LogPart:
    """The bytes of a log from `start`. `size` is the size of the whole log, less than `start` if the log was cut."""

    start: int
    content: bytes
    size: int


@dataclass(frozen=True)
class LogMatches:
    """The last lines that contain a text, as (position, line). `truncated`: the log has more matches before them."""

    lines: tuple[tuple[int, str], ...]
    truncated: bool

    @classmethod
    def parse(cls, fields: Fields) -> LogMatches:
        lines = tuple((match.whole("offset"), match.optional_text("line")) for match in fields.children("matches"))
        return cls(lines, fields.flag("truncated"))
