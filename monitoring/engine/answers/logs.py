"""The logs of a PySpark job's drivers. Only our own job manager serves them by job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from monitoring.engine.fields import Fields
from monitoring.reasons.reason import Reason, from_json


@dataclass(frozen=True)
class DriverLog:
    """One file. `elsewhere` says where the cluster keeps the rest, "" when this is all: as a text where the job manager
    is older than the code."""

    name: str
    attempt: int
    size: int
    started_at: datetime
    changed_at: datetime
    is_first_failure: bool
    elsewhere: Reason | str

    @property
    def is_cut(self) -> bool:
        """Whether it is the end of what was cut from a log that grew too large."""
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
    """Bytes of a log from `start` on. `size` is that of the whole log: less than `start` after it was cut."""

    start: int
    content: bytes
    size: int


@dataclass(frozen=True)
class LogMatches:
    """The last lines that contain a text, as (position, line). `truncated`: there are more before them."""

    lines: tuple[tuple[int, str], ...]
    truncated: bool

    @classmethod
    def parse(cls, fields: Fields) -> LogMatches:
        lines = tuple((match.whole("offset"), match.optional_text("line")) for match in fields.children("matches"))
        return cls(lines, fields.flag("truncated"))
