"""Why a job waits until its driver may start: as JSON, which Flink does not have, and as a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpointing.jobs.launching.admission import Lacking, LaunchWait
from checkpointing.jobs.launching.demand import gib
from checkpointing.jobs.python_environments.preparation import Preparation
from checkpointing.rest.job_operations import time_text


def launch_wait_json(found: tuple[LaunchWait, int] | None) -> dict[str, Any] | None:
    """Return `launch-wait` of `/jobs/:id` for a job in the queue of drivers, None for a job that does not wait there.

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


def environment_wait_json(preparation: Preparation) -> dict[str, Any]:
    """Return `launch-wait` of `/jobs/:id` while the job's Python environment is being prepared.

    `kind` is `requirements` or `archive`. `output` is the last line that pip printed, null before the first.
    `failure` is why the preparation before this one failed, null if none did.
    """
    return {
        "for": Lacking.ENVIRONMENT.value,
        "kind": preparation.kind.value,
        "step": preparation.step.value,
        "output": preparation.output or None,
        "failure": preparation.failure or None,
        "since": preparation.started_ms,
    }


def launch_wait_text(wait: Mapping[str, Any]) -> str:
    """Return the JSON as a sentence for the command line."""
    if wait["for"] == Lacking.ENVIRONMENT.value:
        return _environment_text(wait)
    return f"{_reason(wait)}; position {wait['position']} of {wait['length']}"


def _environment_text(wait: Mapping[str, Any]) -> str:
    text = f"The Python environment is being prepared ({wait['step']}) since {time_text(wait['since'])}"
    if wait["output"]:
        text += f"; pip's last line: {wait['output']}"
    return text + (f"; an earlier preparation failed: {wait['failure']}" if wait["failure"] else "")


def _reason(wait: Mapping[str, Any]) -> str:
    match wait["for"]:
        case Lacking.MEMORY.value:
            return f"waits for {gib(wait['asked'])} of memory: {gib(wait['free'])} of {gib(wait['limit'])} is free"
        case Lacking.MACHINE.value:
            return f"requests {gib(wait['asked'])}, and drivers of this machine may take {gib(wait['limit'])} in all"
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
