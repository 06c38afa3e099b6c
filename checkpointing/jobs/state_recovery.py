"""Flink's keys for what a job starts from, `execution.state-recovery.*`, and the names they had before Flink 2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from checkpointing.model.configuration import InvalidConfiguration

CLAIM_MODES = ("NO_CLAIM", "LEGACY", "CLAIM")

_PATH = ("execution.state-recovery.path", "execution.savepoint.path")
_IGNORE = ("execution.state-recovery.ignore-unclaimed-state", "execution.savepoint.ignore-unclaimed-state")
_CLAIM_MODE = ("execution.state-recovery.claim-mode", "execution.savepoint-restore-mode")


@dataclass(frozen=True)
class StateRecovery:
    """What the configuration says; a request's own fields come before it."""

    path: str | None = None
    ignore_unclaimed_state: bool = False
    claim_mode: str = "NO_CLAIM"

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> StateRecovery:
        """InvalidConfiguration names the first key that is wrong."""
        ignore_key, ignore = _first(settings, _IGNORE, "false")
        if ignore.lower() not in ("true", "false"):
            raise InvalidConfiguration(ignore_key, ignore, "true or false")
        mode_key, mode = _first(settings, _CLAIM_MODE, "NO_CLAIM")
        if mode.upper() not in CLAIM_MODES:
            raise InvalidConfiguration(mode_key, mode, " or ".join(CLAIM_MODES))
        return cls(_first(settings, _PATH, "")[1] or None, ignore.lower() == "true", mode.upper())


def _first(settings: Mapping[str, str], keys: tuple[str, ...], default: str) -> tuple[str, str]:
    """The newest key that is set, and its value."""
    key = next((key for key in keys if key in settings), keys[0])
    return key, settings.get(key, default).strip()
