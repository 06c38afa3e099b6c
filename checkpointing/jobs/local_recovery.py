"""May the next attempt go on in what the one before left? See checkpoint_location/local_recovery.py for how.

Only when that attempt is surely gone and got further than what it was started from, and when what it left is whole: it
ran on this machine under this boot, or it wrote to shared storage and all machines' drivers can be asked for, with
ZooKeeper; then it may have run anywhere. An attempt that went on
in local state and failed before each of its queries had committed a batch may have failed because of that state: then
the newest completed checkpoint is next. A job that has no checkpoint at all has nothing better and tries again.
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
# NFS sends a file to its server when it is closed, and Spark renames a file only once it is closed. So the loss of the
# machine that wrote it takes nothing away.
_WRITE_ON_CLOSE = ("nfs", "nfs4")


def is_enabled(configuration: Mapping[str, str]) -> bool:
    """On unless switched off (Flink's default is off: its local state is a second copy, ours costs nothing)."""
    key = FROM_LOCAL if FROM_LOCAL in configuration else _OLD_NAME
    value = configuration.get(key, "true").strip()
    if value.lower() not in ("true", "false"):
        raise InvalidConfiguration(key, value, "true or false")
    return value.lower() == "true"


def declared_shared(configuration: Mapping[str, str]) -> bool | None:
    """Return whether the configuration says that all machines see what a driver leaves; None where it is silent.

    InvalidConfiguration.
    """
    value = configuration.get(FROM_SHARED, "").strip()
    if value.lower() not in ("true", "false", ""):
        raise InvalidConfiguration(FROM_SHARED, value, "true or false")
    return value.lower() == "true" if value else None


def is_shared(declared: bool | None, directory: Path) -> bool:
    """Return whether other machines see the directory as the driver does.

    Blocking: where nothing is declared, the kind of file system decides.
    """
    return filesystem_of(directory) in _WRITE_ON_CLOSE if declared is None else declared


@dataclass(frozen=True)
class LocalRestore:
    """What `attempt` left in `work_directory`, checked. `batches`: the last commit by query.

    `in_flight`: a query has begun a batch after its last commit, and will run it again with the same number.
    `checkpoint_id`: the snapshot that its first attempt in a row of such was restored from, if it was.
    `of_any_boot`: it lies on shared storage, so that it may be of another machine, or of another boot of this one.
    """

    attempt: int
    work_directory: str
    timeline: str
    batches: dict[str, int]
    checkpoint_id: int | None
    in_flight: bool = False
    of_any_boot: bool = False

    def keeps(self, numbers: BatchNumbers) -> bool:
        """Return whether the batches go on with their numbers, in the range `numbers`; else they need another range."""
        greatest = max(self.batches.values(), default=-1)
        if greatest < 0 or self.in_flight:
            return True
        return numbers.first <= greatest and not is_used_up(numbers.end, greatest)


@dataclass(frozen=True)
class LocalRecoveryFacts:
    """`has_snapshot`: there is a checkpoint or savepoint to restore instead. `rescales`: the next attempt asks for
    another number of state partitions, which Spark gives to committed batches only. `claims_are_known`: no driver of
    the job lives, on any machine. `from_shared`: what the job says of its storage, None when it says nothing.
    """

    host: str
    has_snapshot: bool
    rescales: bool
    claims_are_known: bool = False
    from_shared: bool | None = None


def local_restore(former: AttemptRecord, facts: LocalRecoveryFacts) -> LocalRestore | None:
    """None when there is nothing to gain; LocalStateUnusable says why what is there cannot be used. Blocking."""
    work = _left_in(former)
    if work is None:
        return None
    of_any_boot = facts.claims_are_known and is_shared(facts.from_shared, work)
    pid = former.pid if former.host == facts.host else None
    if pid is None and not of_any_boot:
        return None
    if pid is not None and is_group_alive(pid):
        raise LocalStateUnusable("a process of it is still alive")
    state = LocalState.read(work, of_any_boot=of_any_boot)
    if facts.has_snapshot and not _got_further(former, work, state):
        return None
    if not state.batches and not state.in_flight:
        return None
    if facts.rescales and state.in_flight:
        raise LocalStateUnusable("its last batch is not committed, so its state cannot be rescaled")
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


def began_no_batch(former: AttemptRecord, *, from_shared: bool | None, claims_are_known: bool) -> bool:
    """Return whether an attempt's files prove that none of its queries has begun a batch. Blocking."""
    work = _left_in(former)
    if work is None:
        return False
    try:
        state = LocalState.read(work, of_any_boot=claims_are_known and is_shared(from_shared, work))
    except LocalStateUnusable:
        return False
    return not state.batches and not state.in_flight


def _left_in(former: AttemptRecord) -> Path | None:
    """Its own work directory, or, when it ended before it had taken over, the one that it was to go on in."""
    for directory in (former.work_directory, former.local_directory):
        if directory is not None and (Path(directory) / RECORD_NAME).exists():
            return Path(directory)
    return None


def _got_further(former: AttemptRecord, work: Path, state: LocalState) -> bool:
    if former.local_directory is None:
        return state.some_advanced
    return str(work) == former.work_directory and state.all_advanced


def went_on_in_vain(ended: AttemptRecord) -> bool:
    """Whether an attempt that was restored from local state ended before any of its queries committed a batch."""
    if ended.local_directory is None:
        return False
    try:
        return not LocalState.read(Path(ended.work_directory), of_any_boot=True).some_advanced
    except LocalStateUnusable:
        return True


def is_group_alive(group: int) -> bool:
    """Whether a process of the session that a driver leads still runs; one that only waits to be reaped does not."""
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                state, _, pgrp = (directory / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue  # it ended meanwhile
            if int(pgrp) == group and state not in ("Z", "X"):
                return True
    return False
