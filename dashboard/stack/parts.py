"""What the supervisor runs: servers and our own processes, each with what it needs to be up first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from dashboard.stack.process import Command, Server

# The variable that names the file a process makes when it is ready.
READY_FILE = "WAYMARK_READY_FILE"


class PartState(Enum):
    UP = "up"
    DOWN = "down"
    STARTING = "starting"
    EXTERNAL = "external"


@dataclass(frozen=True)
class Part:
    """`after` names the parts that must be up first. A `step` runs to its end; having succeeded is its being up."""

    server: Server
    after: tuple[str, ...] = ()
    step: bool = False
    version: Callable[[], str] = lambda: ""

    @property
    def name(self) -> str:
        return self.server.name


@dataclass(frozen=True)
class ExternalPart:
    """A part that runs elsewhere, named by an environment variable; `address` shows no password."""

    name: str
    address: str
    variable: str


@dataclass(frozen=True)
class Program:
    """A process that needs no preparation but `make_ready`; `probe` says whether it serves."""

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
