"""What Flink tells of how it started a job that nobody said anything about: parallelism and checkpointing. Pure.

It tells neither the jar nor the main class nor the arguments once a job runs; those are a person's to fill in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PREFIX = "execution.checkpointing."
# /checkpoints/config gives milliseconds.
_MILLISECONDS = {"interval": "interval", "timeout": "timeout", "min_pause": "min-pause"}
_NUMBERS = {
    "max_concurrent": "max-concurrent-checkpoints",
    "tolerable_failed_checkpoints": "tolerable-failed-checkpoints",
}


def settings_of(config: Mapping[str, Any]) -> dict[str, str]:
    """A job's configuration, by Flink's keys, as its /checkpoints/config tells it."""
    if config.get("interval") is None:
        return {}
    found = {_PREFIX + key: f"{config[name]} ms" for name, key in _MILLISECONDS.items() if config.get(name)}
    found |= {_PREFIX + key: str(config[name]) for name, key in _NUMBERS.items() if config.get(name) not in (None, 0)}
    if config.get("mode"):
        found[_PREFIX + "mode"] = str(config["mode"]).upper()
    if config.get("unaligned_checkpoints"):
        found[_PREFIX + "unaligned.enabled"] = "true"
    return found | _retention(config.get("externalization"))


def _retention(externalization: object) -> dict[str, str]:
    if not isinstance(externalization, Mapping) or not externalization.get("enabled"):
        return {}
    deleted = externalization.get("delete_on_cancellation")
    wanted = "DELETE_ON_CANCELLATION" if deleted else "RETAIN_ON_CANCELLATION"
    return {_PREFIX + "externalized-checkpoint-retention": wanted}


def parallelism_of(vertices: list[dict[str, Any]]) -> int | None:
    """The one that most of its operators have, if any does; an operator of its own parallelism keeps that by itself."""
    counts = [int(vertex["parallelism"]) for vertex in vertices]
    return max(set(counts), key=lambda each: (counts.count(each), each)) if counts else None
