"""Read from Flink's answers how a job without a launch record was started: parallelism and checkpointing. Pure.

Flink does not report the jar, the main class and the arguments of a running job; a person must fill these in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PREFIX = "execution.checkpointing."
# Settings that /checkpoints/config reports in milliseconds.
_MILLISECONDS = {"interval": "interval", "timeout": "timeout", "min_pause": "min-pause"}
_NUMBERS = {
    "max_concurrent": "max-concurrent-checkpoints",
    "tolerable_failed_checkpoints": "tolerable-failed-checkpoints",
}


def settings_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the checkpointing settings from a job's /checkpoints/config, by Flink's keys."""
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
    """Return the parallelism that most operators have. Other operators set their parallelism in the program."""
    counts = [int(vertex["parallelism"]) for vertex in vertices]
    return max(set(counts), key=lambda each: (counts.count(each), each)) if counts else None
