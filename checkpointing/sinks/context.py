"""What a sink needs to know of the attempt that it writes for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SinkContext:
    """`timeline` names the life of the job's output since an older state was restored: batch numbers count within it.

    `restored_batches` has, by query, the last batch that the restored state contains.
    """

    job_id: str
    attempt: int
    timeline: str
    restored_batches: Mapping[str, int] = field(default_factory=dict)


class NotInADriver(RuntimeError):
    """A sink was used outside a job of the job manager."""


_current: SinkContext | None = None


def current() -> SinkContext:
    """The context of the job that this process runs. Only in the driver: Python workers do not have one."""
    if _current is None:
        raise NotInADriver("there is no job here: sinks get their context from the driver that runs the program")
    return _current


def set_current(context: SinkContext) -> None:
    """For the driver, before it calls the program."""
    global _current
    _current = context
