"""The parts that the supervisor runs: servers and Waymark's processes, each with the parts that it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from dashboard.stack.process import Command, Server

# The environment variable with the path of the file that a process creates when it is ready.
READY_FILE = "WAYMARK_READY_FILE"


class PartState(Enum):
    UP = "up"
    DOWN = "down"
    STARTING = "starting"
    EXTERNAL = "external"


@dataclass(frozen=True)
class Part:
    """A server or process. `after` names the parts that must be up first.

    A `step` runs once, and counts as up after it has succeeded.
    """

    server: Server
    after: tuple[str, ...] = ()
    step: bool = False
    version: Callable[[], str] = lambda: ""

    @property
    def name(self) -> str:
        return self.server.name


@dataclass(frozen=True)
class ExternalPart:
    """A part that runs elsewhere and is named by an environment variable. Its `address` has no password."""

    name: str
    address: str
    variable: str


@dataclass(frozen=True)
class Program:
    """A process that needs no preparation except `make_ready`. `probe` returns whether it serves."""

    name: str
    address: str
    start: Command
    probe: Callable[[], bool]
    make_ready: Callable[[], None] = field(default=lambda: None)

    def prepare(self) -> None:
        self.make_ready()

    def command(self) -> Command:
        return self.start

    def answers(self) -> bool:
        return self.probe()
