"""Decides whether the next attempt may continue in the local files of the previous attempt.

checkpoint_location/local_recovery.py explains how an attempt does this. It may continue only if the previous attempt is
certainly gone, got further than its starting point, and left intact files. The previous attempt must have run on this
machine since its last boot. On any other machine, it must have written to shared storage, and ZooKeeper must know the
drivers of all machines.

An attempt that continued in local state may fail before each of its queries has committed a batch. The reason may be
that state, so the next attempt restores the newest completed checkpoint. A job without any checkpoint has nothing
better and tries the local state again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from checkpointing.checkpoint_location.local_recovery import RECORD_NAME, LocalState, LocalStateUnusable
from checkpointing.jobs.attempts import AttemptRecord
from checkpointing.jobs.batch_numbers import is_used_up
from checkpointing.jobs.launching.temporary import filesystem_of
from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.configuration import InvalidConfiguration

FROM_LOCAL = "execution.state-recovery.from-local"
FROM_SHARED = "execution.state-recovery.from-shared"
_OLD_NAME = "state.backend.local-recovery"
# NFS sends a file to its server when the file is closed, and Spark renames a file only after closing it. So the loss of
# the machine that wrote the file loses no data.
_WRITE_ON_CLOSE = ("nfs", "nfs4")


def is_enabled(configuration: Mapping[str, str]) -> bool:
    """Return whether local recovery is on. Default: on (off in Flink, where local state costs a second copy)."""
    key = FROM_LOCAL if FROM_LOCAL in configuration else _OLD_NAME
    value = configuration.get(key, "true").strip()
    if value.lower() not in ("true", "false"):
        raise InvalidConfiguration(key, value, "true or false")
    return value.lower() == "true"


def declared_shared(configuration: Mapping[str, str]) -> bool | None:
    """Return whether the configuration says that all machines see a driver's files, or None if it does not say.

    Raise InvalidConfiguration for other values.
    """
    value = configuration.get(FROM_SHARED, "").strip()
    if value.lower() not in ("true", "false", ""):
        raise InvalidConfiguration(FROM_SHARED, value, "true or false")
    return value.lower() == "true" if value else None


def is_shared(declared: bool | None, directory: Path) -> bool:
    """Return whether other machines see the directory as the driver does.

    If nothing is declared, the type of the file system decides. Blocks.
    """
    return filesystem_of(directory) in _WRITE_ON_CLOSE if declared is None else declared


@dataclass(frozen=True)
class LocalRestore:
    """The checked local state that `attempt` left in `work_directory`.

    `batches`: the last committed batch of each query.

    `in_flight`: a query has started a batch after its last commit, and will run it again with the same number.
    `checkpoint_id`: the snapshot that the first attempt in this chain of local recoveries restored, if it did.
    `of_any_boot`: the files are on shared storage, so another machine or another boot may have written them.
    """

    attempt: int
    work_directory: str
    timeline: str
    batches: dict[str, int]
    checkpoint_id: int | None
    in_flight: bool = False
    of_any_boot: bool = False

    def keeps(self, numbers: BatchNumbers) -> bool:
        """Return whether the batches keep their numbers, in the range `numbers`. Otherwise they need another range."""
        greatest = max(self.batches.values(), default=-1)
        if greatest < 0 or self.in_flight:
            return True
        return numbers.first <= greatest and not is_used_up(numbers.end, greatest)


@dataclass(frozen=True)
class LocalRecoveryFacts:
    """Facts for the decision. `has_snapshot`: a checkpoint or savepoint could be restored instead.

    `rescales`: the next attempt needs another number of state partitions; Spark repartitions only committed batches.
    `claims_are_known`: no driver of the job runs on any machine. `from_shared`: the job's setting for its storage,
    None if it is not set.
    """

    host: str
    has_snapshot: bool
    rescales: bool
    claims_are_known: bool = False
    from_shared: bool | None = None


def local_restore(former: AttemptRecord, facts: LocalRecoveryFacts) -> LocalRestore | None:
    """Return the local state to continue, or None if a snapshot or an empty start is better. Blocks.

    Raise LocalStateUnusable.
    """
    work = _work_directory_of(former)
    if work is None:
        return None
    of_any_boot = facts.claims_are_known and is_shared(facts.from_shared, work)
    pid = former.pid if former.host == facts.host else None
    if pid is None and not of_any_boot:
        return None
    if pid is not None and is_group_alive(pid):
        raise LocalStateUnusable("a process of the attempt is still running")
    state = LocalState.read(work, of_any_boot=of_any_boot)
    if facts.has_snapshot and not _has_advanced(former, work, state):
        return None
    if not state.batches and not state.in_flight:
        return None
    if facts.rescales and state.in_flight:
        raise LocalStateUnusable("the last batch is not committed, so the state cannot be rescaled")
    state.check()
    return LocalRestore(
        former.attempt,
        str(work),
        former.timeline,
        state.batches,
        former.restored_checkpoint_id,
        in_flight=state.in_flight,
        of_any_boot=of_any_boot,
    )


def started_no_batch(former: AttemptRecord, *, from_shared: bool | None, claims_are_known: bool) -> bool:
    """Return whether an attempt's files prove that none of its queries has started a batch. Blocking."""
    work = _work_directory_of(former)
    if work is None:
        return False
    try:
        state = LocalState.read(work, of_any_boot=claims_are_known and is_shared(from_shared, work))
    except LocalStateUnusable:
        return False
    return not state.batches and not state.in_flight


def _work_directory_of(former: AttemptRecord) -> Path | None:
    """Return the attempt's work directory. If it ended before taking over an earlier one, return that one."""
    for directory in (former.work_directory, former.local_directory):
        if directory is not None and (Path(directory) / RECORD_NAME).exists():
            return Path(directory)
    return None


def _has_advanced(former: AttemptRecord, work: Path, state: LocalState) -> bool:
    if former.local_directory is None:
        return state.some_advanced
    return str(work) == former.work_directory and state.all_advanced


def committed_no_batch(ended: AttemptRecord) -> bool:
    """Return whether an attempt restored from local state ended before any of its queries committed a batch."""
    if ended.local_directory is None:
        return False
    try:
        return not LocalState.read(Path(ended.work_directory), of_any_boot=True).some_advanced
    except LocalStateUnusable:
        return True


def is_group_alive(group: int) -> bool:
    """Return whether a process of the session that a driver leads still runs. A zombie does not count."""
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                state, _, pgrp = (directory / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue  # the process ended meanwhile
            if int(pgrp) == group and state not in ("Z", "X"):
                return True
    return False
