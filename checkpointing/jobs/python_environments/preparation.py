"""The progress of preparing one job's environment. The thread that prepares it writes it; any thread reads it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import Enum


class SourceKind(Enum):
    REQUIREMENTS = "requirements"
    ARCHIVE = "archive"


class Step(Enum):
    READING = "reading"
    WAITING = "waiting"
    """Another job is preparing the same environment."""
    INSTALLING = "installing"
    UNPACKING = "unpacking"
    CHECKING = "checking"


@dataclass(frozen=True)
class PreparedPython:
    """A prepared environment. `name` is its name in the cache, `python` the path of its interpreter."""

    name: str
    python: str


@dataclass
class Preparation:
    """The progress of one preparation. It is in progress unless it is `prepared` or `has_failed`.

    `stop` is set once no caller waits for the environment. `output` is the last line that pip printed. `failure` is why
    the job's last preparation, this or an earlier one, failed; empty if it did not fail. Both are without secrets.
    """

    kind: SourceKind
    started_ms: int
    step: Step = Step.READING
    prepared: PreparedPython | None = None
    has_failed: bool = False
    output: str = ""
    failure: str = ""
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def status(self) -> str:
        if self.prepared is not None:
            return "READY"
        return "FAILED" if self.has_failed else "PREPARING"
