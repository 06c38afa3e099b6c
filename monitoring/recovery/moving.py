"""Moves open attempts through their stages: claim, plan, act, conclude.

The claim is the value of `claimed_until`. The claim of a worker that dies expires. Every write is conditional on the
claim, so a worker that was too slow notices that it has lost the claim.

Each act runs in its own thread, and each attempt continues when its act ends. So a hanging cluster or a slow launch
command delays no other attempt. Only the caller's thread reads and writes rows.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from monitoring.engine_calls import Call, call_all
from monitoring.models import RestartAttempt
from monitoring.models.recovery import ENDED
from monitoring.reasons.recovery import RecoveryReason
from monitoring.recovery.applying import RELATED, apply, stage_of
from monitoring.recovery.stages.base import Act, Outcome, Overtaken

BATCH = 50
# Longer than the limit of an engine call. During a longer act, the claim is renewed.
CLAIM = timedelta(seconds=90)
# How often newly due attempts are looked up while acts are in progress.
DUE_CHECK_EVERY_S = 1.0
# Stages, and refused snapshots, that an attempt may pass before other attempts have their turn.
ROUNDS = 12

# Only one thread of a process moves attempts, so that slow launches do not block the other task threads.
_moves = threading.Semaphore(1)


def move_attempts(now: datetime) -> Counter[RecoveryReason]:
    """Move due attempts, and return how many attempts had each result.

    The result is empty while another thread of this process moves attempts: that thread moves newly due ones, too.
    """
    if not _moves.acquire(blocking=False):
        return Counter()
    try:
        return _Cycle(now).run()
    finally:
        _moves.release()


class _Cycle:
    def __init__(self, now: datetime) -> None:
        self._now, self._started = now, time.monotonic()
        self._renewed_at = self._started
        self._outcome: Counter[RecoveryReason] = Counter()
        self._rounds: Counter[int] = Counter()
        self._under_way: dict[Future[object], RestartAttempt] = {}
        self._threads = ThreadPoolExecutor(2 * BATCH, "moves-an-attempt")

    def run(self) -> Counter[RecoveryReason]:
        try:
            self._take_up_due()
            while self._under_way:
                over, _ = wait(self._under_way, DUE_CHECK_EVERY_S, FIRST_COMPLETED)
                for act in over:
                    self._conclude(self._under_way.pop(act), act.result())
                if self._under_way:
                    self._renew_claims()
                    self._take_up_due()
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)
        return self._outcome

    @property
    def _moment(self) -> datetime:
        """Return the caller's `now` plus the duration of this cycle, because claims must cover real time."""
        return self._now + timedelta(seconds=int(time.monotonic() - self._started))

    def _take_up_due(self) -> None:
        for attempt in _due(self._moment, 2 * BATCH - len(self._under_way)):
            if claimed := _claim(attempt, attempt.claimed_until, self._moment):
                self._rounds[claimed.pk] = 0
                self._go_on(claimed)

    def _go_on(self, claimed: RestartAttempt | None) -> None:
        """Move the attempt from stage to stage, until one acts on the engine or waits."""
        while claimed is not None:
            if self._rounds[claimed.pk] >= ROUNDS:
                _give_back(claimed)
                return
            self._rounds[claimed.pk] += 1
            plan = _plan(claimed, self._moment)
            if plan is None:
                return
            if isinstance(plan, Act):
                call = Call(claimed.job.cluster, plan.call, plan.limit_s)
                self._under_way[self._threads.submit(_answer, call)] = claimed
                return
            claimed = self._settled(claimed, None, plan)

    def _conclude(self, attempt: RestartAttempt, answer: object) -> None:
        self._go_on(self._settled(attempt, answer, None))

    def _settled(self, attempt: RestartAttempt, answer: object, decided: Outcome | None) -> RestartAttempt | None:
        """Apply the outcome. If another stage follows at once, return the attempt with a new claim."""
        now = self._moment  # an act, such as a launch command, may take long
        result = _settle(attempt, answer, decided, now)
        if result is not None:
            self._outcome[result] += 1
            return None
        return _claim(attempt, attempt.claimed_until, now)

    def _renew_claims(self) -> None:
        """Renew the claims of attempts with an act in progress. A lost claim is noticed when the act ends."""
        if time.monotonic() - self._renewed_at < CLAIM.total_seconds() / 3:
            return
        self._renewed_at = time.monotonic()
        for attempt in self._under_way.values():
            until = self._moment + CLAIM
            ours = RestartAttempt.objects.filter(pk=attempt.pk, claimed_until=attempt.claimed_until)
            if ours.update(claimed_until=until):
                attempt.claimed_until = until


def _answer(call: Call[object]) -> object:
    (answer,) = call_all([call])
    return answer


def _due(now: datetime, most: int = BATCH) -> list[RestartAttempt]:
    # No claim and no wait is this long: a later time was written before the clock was set back.
    wrong = now + 2 * CLAIM
    free = Q(claimed_until=None) | Q(claimed_until__lte=now) | Q(claimed_until__gt=wrong)
    step = Q(next_step_at__lte=now) | Q(next_step_at__gt=wrong)
    due = RestartAttempt.objects.filter(free, step).exclude(state__in=ENDED)
    return list(due.order_by("next_step_at", "id")[: min(BATCH, most)])


def _claim(attempt: RestartAttempt, seen: datetime | None, now: datetime) -> RestartAttempt | None:
    """Claim the attempt and return its present row, or None if another worker has it."""
    open_row = RestartAttempt.objects.filter(pk=attempt.pk, claimed_until=seen).exclude(state__in=ENDED)
    if not open_row.update(claimed_until=now + CLAIM):
        return None
    return RestartAttempt.objects.select_related(*RELATED).get(pk=attempt.pk)


def _plan(attempt: RestartAttempt, now: datetime) -> Act | Outcome | None:
    """Return the stage's plan, or None if another worker has the attempt."""
    try:
        return stage_of(attempt).plan(attempt, now)
    except Overtaken:
        return None


def _settle(attempt: RestartAttempt, answer: object, decided: Outcome | None, now: datetime) -> RecoveryReason | None:
    try:
        with transaction.atomic():
            return apply(attempt, answer, decided, now)
    except Overtaken:
        return RecoveryReason.OVERTAKEN


def _give_back(attempt: RestartAttempt) -> None:
    RestartAttempt.objects.filter(pk=attempt.pk, claimed_until=attempt.claimed_until).update(claimed_until=None)
