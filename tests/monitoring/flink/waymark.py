"""Waymark's worker for these tests. It polls, takes savepoints and recovers jobs in turns, with real clusters."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self, TypeVar

from django.utils import timezone

from monitoring.models import (
    AttemptState,
    Cluster,
    Job,
    RestartAttempt,
    Run,
    Savepoint,
    SavepointOrigin,
    SavepointState,
)
from monitoring.polling.poller import Poller
from monitoring.polling.service import SERVE_LIMIT_S
from monitoring.recovery import cycle as recovery
from monitoring.recovery.planned import awaited
from monitoring.savepoints import cycle as savepoints
from monitoring.savepoints.request import IN_FLIGHT, request_savepoint
from tests.waiting import LIMIT_S, eventually

T = TypeVar("T")


class Waymark:
    """A worker whose clock is ahead by `ahead`, so that tests need not wait for hold-downs.

    `skips_waits`: its clock moves by a millisecond each time it is read, and to the next poll or step when nothing is
    left to do. This suits fake clusters, which need no time to start.
    """

    def __init__(self, *, skips_waits: bool = False) -> None:
        self.ahead = timedelta()
        self._skips_waits = skips_waits
        self._began = timezone.now()
        self._readings = itertools.count()
        self._poller = Poller(self.now)

    def now(self) -> datetime:
        if not self._skips_waits:
            return timezone.now() + self.ahead
        return self._began + timedelta(milliseconds=next(self._readings)) + self.ahead

    def __enter__(self) -> Self:
        self._poller.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._poller.__exit__(kind, error, trace)

    def until(self, what: str, condition: Callable[[], T], limit_s: float = LIMIT_S) -> T:
        def turned() -> T:
            self._poller.start_due()
            self._poller.serve(0 if self._skips_waits and not self._poller.in_flight else SERVE_LIMIT_S)
            savepoints.advance(self.now())
            began = time.monotonic()
            recovery.advance(self.now())
            if self._skips_waits:
                self.ahead += timedelta(seconds=int(time.monotonic() - began))  # the cycle counts this time, too
            result = condition()
            if not result and self._skips_waits and not self._poller.in_flight:
                self._skip_wait()
            return result

        return eventually(what, turned, limit_s)

    def _skip_wait(self) -> None:
        """Move the clock to the next poll, step of a restart or check of a savepoint."""
        now = self.now()
        polls = Cluster.objects.filter(enabled=True).values_list("next_poll_at", flat=True)
        checks = Savepoint.objects.filter(state__in=IN_FLIGHT).values_list("next_check_at", flat=True)
        due = [at or now for at in polls] + [at for at in (*checks, awaited(now).soonest) if at is not None]
        self.ahead += max(min(due, default=now) - now, timedelta())

    def job(self, name: str) -> Job:
        """Wait until the job was polled and runs, and return it."""

        def running() -> Job | None:
            return Job.objects.filter(name=name, current_run__state="RUNNING").first()

        found = self.until(f"{name} is seen", running)
        assert found is not None
        return found

    def stopped_with_savepoint(self, name: str) -> Savepoint:
        savepoint = request_savepoint(self.job(name), SavepointOrigin.MANUAL, "ada", self.now(), stops_job=True)

        def over() -> bool:
            savepoint.refresh_from_db()
            return not SavepointState(savepoint.state).open

        self.until("its savepoint has ended", over)
        assert savepoint.state == SavepointState.COMPLETED, savepoint.failure
        self.until("it has stopped", lambda: Run.objects.filter(pk=savepoint.run_id, state="FINISHED").exists())
        return savepoint

    def ended(self, attempt: RestartAttempt) -> RestartAttempt:
        def over() -> bool:
            attempt.refresh_from_db()
            return not AttemptState(attempt.state).open

        self.until(f"restart {attempt.epoch} has ended", over)
        return attempt
