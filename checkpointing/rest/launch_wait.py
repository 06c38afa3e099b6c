"""Why a job waits until its driver may start: as JSON, ours beside Flink's, and as a sentence for the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpointing.jobs.launching.admission import Lacking, LaunchWait
from checkpointing.jobs.launching.demand import gib


def launch_wait_json(found: tuple[LaunchWait, int] | None) -> dict[str, Any] | None:
    """Return `launch-wait` of `/jobs/:id`, None for a job that does not wait.

    `asked` is in bytes. `free` and `limit` are in bytes for `memory` and `machine`, numbers for `drivers` and `starts`,
    else null.
    """
    if found is None:
        return None
    wait, since_ms = found
    return {
        "for": wait.lacking.value,
        "asked": wait.asked,
        "free": wait.free,
        "limit": wait.limit,
        "position": wait.position,
        "length": wait.length,
        "since": since_ms,
    }


def launch_wait_text(wait: Mapping[str, Any]) -> str:
    """Read what `launch_wait_json` wrote."""
    return f"{_reason(wait)}; position {wait['position']} of {wait['length']}"


def _reason(wait: Mapping[str, Any]) -> str:
    match wait["for"]:
        case Lacking.MEMORY.value:
            return f"waits for memory: asks {gib(wait['asked'])}, {gib(wait['free'])} of {gib(wait['limit'])} is free"
        case Lacking.MACHINE.value:
            return f"asks {gib(wait['asked'])}, and drivers of this machine may take {gib(wait['limit'])} in all"
        case Lacking.DRIVERS.value:
            return f"waits until another job ends: {wait['limit']} drivers are allowed on this machine"
        case Lacking.STARTS.value:
            return f"waits until other drivers have started: at most {wait['limit']} start at a time"
        case Lacking.TURN.value:
            return "waits behind a job that waits for room"
        case Lacking.RECOVERY.value:
            return "waits until jobs of higher priority are recovered"
        case other:
            return f"waits ({other})"
