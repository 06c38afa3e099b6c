"""What a job and its attempts restore, and the settings for it.

A new attempt restores the newest retained checkpoint, else an older one, else the savepoint of the job's submission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.job_graph import JobGraph

ALLOW_EMPTY_START = "waymark.allow-empty-start"
AFTER_RESTORE = "execution.sinks.after-restore"
BATCH_NUMBERS = "waymark.batch-numbers"
_CHOICES = ("write-again", "refuse")
# Flink's keys for the snapshot that a job starts from, and their names before Flink 2.
CLAIM_MODES = ("NO_CLAIM", "LEGACY", "CLAIM")
_PATH = ("execution.state-recovery.path", "execution.savepoint.path")
_IGNORE = ("execution.state-recovery.ignore-unclaimed-state", "execution.savepoint.ignore-unclaimed-state")
_CLAIM_MODE = ("execution.state-recovery.claim-mode", "execution.savepoint-restore-mode")


@dataclass(frozen=True)
class RestoreCandidate:
    """A snapshot to try. `location` is spelled as the user or the store wrote it; `label` names it for people."""

    location: str
    label: str


def claims_savepoint(graph: JobGraph) -> bool:
    """Return whether the job takes over the snapshot that it was submitted with (`claimMode` CLAIM)."""
    return graph.savepoint_path is not None and graph.claim_mode == "CLAIM"


def restore_candidates(retained: Sequence[CompletedCheckpoint], graph: JobGraph) -> tuple[RestoreCandidate, ...]:
    """Return the candidates, best first. `retained` comes from the store, oldest first.

    A claimed savepoint is in the store from the first attempt until newer checkpoints have replaced it.
    """
    candidates = [
        RestoreCandidate(checkpoint.location, f"checkpoint {checkpoint.checkpoint_id}")
        for checkpoint in reversed(retained)
    ]
    if graph.savepoint_path is not None and not (retained and claims_savepoint(graph)):
        candidates.append(RestoreCandidate(graph.savepoint_path, "the savepoint that the job was submitted with"))
    return tuple(candidates)


def replaced_batches(checkpoint: CompletedCheckpoint, query: str, restored: int) -> str:
    """Return why a query that keeps its batch numbers cannot be restored: it has since returned to batch `restored`."""
    kind = "savepoint" if checkpoint.properties.is_savepoint else "checkpoint"
    since = f"was restored to batch {restored}" if restored >= 0 else "started without state"
    earlier = f", or one that ends with batch {restored} or before" if restored >= 0 else ""
    return (
        f"Query {query!r} cannot be restored from {kind} {checkpoint.checkpoint_id}, which contains its batches up to "
        f"{checkpoint.batches[query]}. It keeps its batch numbers ({BATCH_NUMBERS}: repeat) and {since} after that "
        f"{kind} was taken, so it may have replaced batches from {restored + 1} on: their rows would be lost or "
        f"doubled. Restore a state that was taken since{earlier}."
    )


def may_start_empty(graph: JobGraph) -> bool:
    """Return whether a job that had state and lost all of it may start without state. Off by default."""
    return graph.configuration.get(ALLOW_EMPTY_START, "false").lower() == "true"


def refuses_to_write_again(configuration: Mapping[str, str]) -> bool:
    """Return whether an automatic restore must not write rows a second time. InvalidConfiguration."""
    value = configuration.get(AFTER_RESTORE, _CHOICES[0]).strip()
    if value.lower() not in _CHOICES:
        raise InvalidConfiguration(AFTER_RESTORE, value, " or ".join(_CHOICES))
    return value.lower() == "refuse"


@dataclass(frozen=True)
class StateRecovery:
    """The restore settings in the configuration (`execution.state-recovery.*`). Fields of a request override them."""

    path: str | None = None
    ignore_unclaimed_state: bool = False
    claim_mode: str = "NO_CLAIM"

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> StateRecovery:
        """Parse the settings. Raise InvalidConfiguration, which names the first wrong key."""
        ignore_key, ignore = _first(settings, _IGNORE, "false")
        if ignore.lower() not in ("true", "false"):
            raise InvalidConfiguration(ignore_key, ignore, "true or false")
        mode_key, mode = _first(settings, _CLAIM_MODE, "NO_CLAIM")
        if mode.upper() not in CLAIM_MODES:
            raise InvalidConfiguration(mode_key, mode, " or ".join(CLAIM_MODES))
        return cls(_first(settings, _PATH, "")[1] or None, ignore.lower() == "true", mode.upper())


def _first(settings: Mapping[str, str], keys: tuple[str, ...], default: str) -> tuple[str, str]:
    """Return the newest key that is set, and its value."""
    key = next((key for key in keys if key in settings), keys[0])
    return key, settings.get(key, default).strip()
