"""Read the sources that are due, each in a separate thread.

A tick starts the threads and returns. So a server that hangs holds neither another source nor a thread of the worker. A
round lasts some seconds, because it waits for changes. The next tick continues it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

from django.db import DatabaseError, connection

from monitoring import clock
from monitoring.discovery import claims, reconciling
from monitoring.discovery.claims import LEASE, Claim, ClaimLost
from monitoring.discovery.reconciling import Change
from monitoring.models import DiscoverySource, SourceKind
from monitoring.reasons.columns import columns
from monitoring.reasons.discoveries import DiscoveryReason
from monitoring.reasons.reason import Reason
from monitoring.reasons.report import CycleReport

T = TypeVar("T")

ROUND_S = 45.0
AGAIN_AFTER = timedelta(seconds=30)
_RENEW_EVERY_S = LEASE.total_seconds() / 3

Report = Callable[[CycleReport], None]


class InDatabase(Protocol):
    """Runs a function in the thread that may use the database and its clock, and returns its result."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


class Look(Protocol):
    """Reads a source. See kubernetes.watching.look and yarn.polling.look."""

    def __call__(
        self, claim: Claim, in_database: InDatabase, lasts_s: float, now: Callable[[], datetime]
    ) -> Awaitable[tuple[Counter[Change], Reason | str]]: ...


def _looks() -> Mapping[str, Look]:
    from monitoring.discovery.kubernetes import watching
    from monitoring.discovery.yarn import polling

    return {SourceKind.KUBERNETES: watching.look, SourceKind.YARN: polling.look}


class Rounds:
    """The rounds of this process. May be used from any thread."""

    def __init__(self, lasts_s: float = ROUND_S, now: Callable[[], datetime] = clock.now) -> None:
        self._lasts_s = lasts_s
        self._now = now
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._cancels: dict[threading.Thread, Callable[[], object]] = {}
        self._ended = False

    def start_due(self, report: Report, failed: Callable[[str, Exception], object]) -> None:
        """Start a round for each source that is due. `report` gets what changed, `failed` the errors of rounds."""
        with self._lock:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            for claim in [] if self._ended else claims.claim_due(self._now()):
                name = f"discovery {claim.source}"
                thread = threading.Thread(target=self._run, args=(claim, report, failed), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def end(self) -> None:
        """End all rounds soon, and start no more. Their sources are released."""
        with self._lock:
            self._ended = True
            for cancel in self._cancels.values():
                cancel()

    def join(self, limit_s: float = 10.0) -> None:
        for thread in list(self._threads):
            thread.join(limit_s)

    def _run(self, claim: Claim, report: Report, failed: Callable[[str, Exception], object]) -> None:
        with ThreadPoolExecutor(1, thread_name_prefix="discovery database") as database:
            try:
                report(asyncio.run(self._round(claim, database)))
            except* (ClaimLost, asyncio.CancelledError):
                pass  # another worker continues
            except* Exception as group:  # noqa: BLE001  (outermost level of the thread: the next tick tries again)
                failed(claim.source.name, group.exceptions[0])
            finally:
                with self._lock:
                    self._cancels.pop(threading.current_thread(), None)
                database.submit(lambda: connection.close())  # of that thread

    async def _round(self, claim: Claim, database: ThreadPoolExecutor) -> CycleReport:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        with self._lock:
            if self._ended or task is None:
                return CycleReport()
            self._cancels[threading.current_thread()] = partial(loop.call_soon_threadsafe, task.cancel)

        def in_database(work: Callable[[], Any]) -> Awaitable[Any]:
            return loop.run_in_executor(database, work)

        renewal = asyncio.create_task(self._renew(claim, in_database))
        pause = AGAIN_AFTER
        try:
            look = _looks()[claim.source.kind]
            changes, problem = await look(claim, in_database, self._lasts_s, self._now)
            await in_database(lambda: _note(claim, problem, self._now()))
            if not problem:
                pause = timedelta()
        except asyncio.CancelledError:
            pause = timedelta()  # another worker continues
            raise
        finally:
            renewal.cancel()
            database.submit(self._release, claim, pause)
        return _report(claim.source, changes)

    def _release(self, claim: Claim, pause: timedelta) -> None:
        claims.release(claim, self._now() + pause)

    async def _renew(self, claim: Claim, in_database: InDatabase) -> None:
        with contextlib.suppress(ClaimLost, DatabaseError):  # the next change notices it, too
            while True:
                await asyncio.sleep(_RENEW_EVERY_S)
                await in_database(lambda: claims.renew(claim, self._now()))


def _note(claim: Claim, problem: Reason | str, now: datetime) -> None:
    reconciling.accept_rebuilt(claim.source)
    reconciling.discard_old(claim.source, now)
    DiscoverySource.objects.filter(pk=claim.source.pk).update(**columns("last_error", problem))


def _report(source: DiscoverySource, changes: Counter[Change]) -> CycleReport:
    if not changes:
        return CycleReport()
    counted = [change.value(count=changes[change]) for change in Change if changes[change]]
    return CycleReport((DiscoveryReason.CHANGES(source=source.name, changes=counted),))


ROUNDS = Rounds()
