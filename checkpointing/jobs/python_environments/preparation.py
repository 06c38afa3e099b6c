"""How far the preparation of one job's environment is: written by the thread that prepares it, read by everybody."""

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
    """Another job prepares the same environment."""
    INSTALLING = "installing"
    UNPACKING = "unpacking"
    CHECKING = "checking"


@dataclass(frozen=True)
class PreparedPython:
    """`name` is the environment's in the cache, `python` the path of its interpreter."""

    name: str
    python: str


@dataclass
class Preparation:
    """`stop` is set once nobody waits for it any more. Neither `prepared` nor `has_failed`: it is under way."""

    kind: SourceKind
    started_ms: int
    step: Step = Step.READING
    prepared: PreparedPython | None = None
    has_failed: bool = False
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def status(self) -> str:
        if self.prepared is not None:
            return "READY"
        return "FAILED" if self.has_failed else "PREPARING"
