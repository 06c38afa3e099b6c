"""Copy the checkpoint locations of watched queries to savepoints.

1. WatchedTransport stores a request, a LocationCopy.
2. A worker claims it, and copies in a thread, which renews the claim. The savepoint's directory is the claim's own.
3. `_metadata` completes the savepoint. It is written last, and only while the claim holds.
4. The row gets the savepoint's path, if the claim still holds. Otherwise, the worker removes its directory.

If a worker is stopped, its claim expires. The next worker removes what the earlier ones left, and copies again. Nothing
is written to the watched directory.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import Q, QuerySet

from checkpointing.clock import SystemClock
from checkpointing.daemon_threads import in_daemon_thread
from checkpointing.ids import stable_id
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.model.refusals import Refusal, Refused
from checkpointing.spark.imported import import_savepoint, stage_running
from checkpointing.spark.spark_location import UNNAMED
from checkpointing.storage import FileCheckpointStorage, OutsideSavepointRoots, SavepointRoots, files_for, is_local
from checkpointing.storage.layout import METADATA, savepoint_name
from checkpointing.storage.locations import name, parent
from monitoring import clock
from monitoring.models import CopyState, LocationCopy, Savepoint
from monitoring.reasons.columns import columns
from monitoring.reasons.refusals import reason_of
from monitoring.savepoints.request import IN_FLIGHT
from monitoring.state_roots import is_below

log = logging.getLogger(__name__)

# A claim lasts longer than several renewals, in case the database does not answer some of them.
CLAIM = timedelta(seconds=60)
RENEW_S = 15.0
# How many times a copy is tried if its worker is stopped, and how long to wait before the next try to remove files.
TRIES = 3
REMOVE_AGAIN = timedelta(minutes=10)
# How many copies of one cluster a process makes at the same time.
AT_ONCE = 2
# How long rows of ended copies stay. The savepoint's row soon has the result. Files that could not be removed need the
# row for the next try.
KEPT = timedelta(days=7)
_OPEN = (CopyState.QUEUED, CopyState.COPYING)


class _Places:
    """The number of copies that this process makes now, by cluster."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: dict[int, int] = {}

    def take(self, cluster: int) -> bool:
        with self._lock:
            taken = self._taken.get(cluster, 0)
            self._taken[cluster] = min(taken + 1, AT_ONCE)
            return taken < AT_ONCE

    def leave(self, cluster: int) -> None:
        with self._lock:
            self._taken[cluster] -= 1


_PLACES = _Places()


def take_up(now: datetime) -> list[threading.Event]:
    """Claim the copies that no worker makes, and begin them. Return an event for each that is set at its end.

    The copies run in daemon threads, because a storage may never answer.
    """
    waiting = Q(state__in=_OPEN) | Q(leftovers=True)
    rows = LocationCopy.objects.filter(waiting).exclude(claimed_until__gt=now).select_related("cluster")
    begun = []
    for copy in rows.order_by("pk"):
        if not _PLACES.take(copy.cluster_id):
            continue
        if _claim(copy, now):
            ended = threading.Event()
            in_daemon_thread(partial(_run, copy, ended), f"saves {copy.location}")
            begun.append(ended)
        else:
            _PLACES.leave(copy.cluster_id)
    return begun


def forget_ended(now: datetime) -> int:
    """Delete the rows of copies that ended long ago; return how many."""
    return LocationCopy.objects.filter(ended_at__lt=now - KEPT).delete()[0]


def _claim(copy: LocationCopy, now: datetime) -> bool:
    held = _ours(copy)
    copy.tries += 1
    if copy.state != CopyState.FAILED:
        copy.state = CopyState.COPYING
    return held.update(state=copy.state, tries=copy.tries, claimed_until=now + CLAIM) == 1


def _ours(copy: LocationCopy) -> QuerySet[LocationCopy]:
    """Return a query that finds the row only if it is unchanged, so that no other worker has claimed it since."""
    return LocationCopy.objects.filter(pk=copy.pk, tries=copy.tries, state=copy.state)


def _is_wanted(copy: LocationCopy) -> bool:
    """Return whether this worker holds the claim, and the savepoint's row still waits for the copy."""
    waits = Savepoint.objects.filter(trigger_id=copy.trigger_id, state__in=IN_FLIGHT).exists()
    return waits and _ours(copy).exists()


def _run(copy: LocationCopy, ended: threading.Event) -> None:
    try:
        with _renewed(copy):
            if copy.state == CopyState.FAILED:
                _remove_leftovers(copy)
            else:
                _make(copy)
    except Exception:  # the outermost level of a thread: the claim expires, and another worker copies again
        log.exception("%s: the copy to a savepoint was interrupted", copy.location)
    finally:
        connection.close()
        _PLACES.leave(copy.cluster_id)
        ended.set()


@contextmanager
def _renewed(copy: LocationCopy) -> Iterator[None]:
    """Renew the claim in a thread, at once and until the block ends."""
    over = threading.Event()

    def renew() -> None:
        try:
            while not over.is_set():
                try:
                    _ours(copy).update(claimed_until=clock.now() + CLAIM)
                except DatabaseError as error:
                    log.warning("the claim on the copy of %s was not renewed: %s", copy.location, error)
                over.wait(RENEW_S)
        finally:
            connection.close()

    in_daemon_thread(renew, f"renews {copy.location}")
    try:
        yield
    finally:
        over.set()


def _make(copy: LocationCopy) -> None:
    try:
        for earlier in range(1, min(copy.tries - 1, TRIES) + 1):
            _remove(copy, earlier)
        if copy.tries > TRIES:
            raise Refused(Refusal.COPY_STOPPED, location=copy.location, count=TRIES)
        saved = _saved(copy)
    except (OSError, Refused) as error:
        _fail(copy, error)
        return
    Savepoint.objects.filter(trigger_id=copy.trigger_id).update(size=saved.state_size)
    values = {"state": CopyState.COMPLETED, "path": saved.location, "ended_at": clock.now()}
    if not _ours(copy).update(**values):
        _remove(copy, copy.tries)


def _saved(copy: LocationCopy) -> CompletedCheckpoint:
    """Copy the newest committed batch. Raise Refused, or an OSError if a storage fails."""
    roots = SavepointRoots(settings.STATE_ROOTS)
    target = _target(copy, roots)
    _check_target(target, copy, roots)
    directory = _directory(copy, target, copy.tries)
    scratch = _scratch(directory)
    scratch.mkdir(mode=0o700)
    try:
        return import_savepoint(
            {UNNAMED: roots.resolve(copy.location)},
            lambda job_id: FileCheckpointStorage(
                None, job_id, savepoint_roots=roots, owns_pool=partial(_is_wanted, copy)
            ),
            directory,
            "",
            SystemClock(),
            scratch,
            stage=partial(stage_running, query_id=_spark_id(copy)),
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _target(copy: LocationCopy, roots: SavepointRoots) -> str:
    """Return the target without symbolic links."""
    try:
        return roots.resolve(copy.target)
    except OutsideSavepointRoots as error:
        raise Refused(Refusal.TARGET_NOT_ALLOWED, target=copy.target) from error


def _check_target(target: str, copy: LocationCopy, roots: SavepointRoots) -> None:
    root = roots.resolve(copy.cluster.rest_url)
    if is_below(target, root):
        raise Refused(Refusal.TARGET_INSIDE, target=copy.target, root=copy.cluster.rest_url)
    if is_local(target) and not Path(target).is_dir():
        raise Refused(Refusal.TARGET_MISSING, target=copy.target)


def _directory(copy: LocationCopy, target: str, tries: int) -> str:
    """Return the savepoint's directory of one claim."""
    job_id = stable_id("import", _spark_id(copy))  # as import_savepoint calls the job
    return f"{target.rstrip('/')}/{savepoint_name(job_id, stable_id(copy.trigger_id, str(tries)))}"


def _spark_id(copy: LocationCopy) -> str:
    return str(uuid.UUID(copy.query_id))


def _scratch(directory: str) -> Path:
    """Return the directory for the first copy. Next to a local savepoint, the second one only links its files."""
    if is_local(directory):
        return Path(parent(directory)) / f".{name(directory)}"
    return Path(tempfile.gettempdir()) / f"waymark-{name(directory)}"


def _fail(copy: LocationCopy, error: OSError | Refused) -> None:
    """Store the failure, and remove what there is of the copy. A copy that is refused has not written anything yet."""
    refused = error
    if not isinstance(refused, Refused):
        where, target = copy.location, copy.target
        refused = Refused(Refusal.NOT_SAVED, location=where, target=target, error=str(error))
    reason = reason_of(refused)
    log.warning("%s", reason)
    leftovers = refused is not error or copy.tries > 1
    failed = {"state": CopyState.FAILED, "ended_at": clock.now(), **columns("failure", reason)}
    if _ours(copy).update(**failed, leftovers=leftovers) and leftovers:
        copy.state = CopyState.FAILED
        _remove_leftovers(copy)


def _remove_leftovers(copy: LocationCopy) -> None:
    try:
        for each in range(1, min(copy.tries, TRIES) + 1):
            _remove(copy, each)
    except (OSError, Refused) as error:
        log.warning("what is left of a savepoint of %s could not be removed: %s", copy.location, error)
        _ours(copy).update(claimed_until=clock.now() + REMOVE_AGAIN)
    else:
        _ours(copy).update(leftovers=False)


def _remove(copy: LocationCopy, tries: int) -> None:
    """Remove what a claim left. `_metadata` goes first, so that the rest never looks like a savepoint."""
    directory = _directory(copy, _target(copy, SavepointRoots(settings.STATE_ROOTS)), tries)
    files = files_for(directory)
    files.remove_file(f"{directory}/{METADATA}")
    files.remove_tree(directory)
    shutil.rmtree(_scratch(directory), ignore_errors=True)
