"""Moves open attempts: claim, plan, act, conclude, as many stages as go through at once.

The claim is the value of `claimed_until`. A worker that dies loses it with time, a worker that was too slow finds that
it lost it: every write is conditional on it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from monitoring.engine_calls import Call, call_all
from monitoring.models import AttemptState, RestartAttempt
from monitoring.models.recovery import ENDED
from monitoring.recovery.applying import RELATED, STAGES, apply
from monitoring.recovery.stages.base import Act, Outcome, Overtaken

BATCH = 50
# Longer than an engine call may take, so that a claim never ends under one.
CLAIM = timedelta(seconds=90)
# Stages and refused states that one cycle goes through before it lets others have their turn.
ROUNDS = 12


def move_attempts(now: datetime) -> Counter[str]:
    """How many attempts came to which end of this cycle, in words."""
    outcome: Counter[str] = Counter()
    started = time.monotonic()

    def moment() -> datetime:
        """The caller's `now`, and what the cycle itself has taken since: claims must cover real time."""
        return now + timedelta(seconds=int(time.monotonic() - started))

    moving = [claimed for attempt in _due(now) if (claimed := _claim(attempt, attempt.claimed_until, now))]
    for _ in range(ROUNDS):
        if not moving:
            break
        moving = _one_round(moving, moment, outcome)
    for attempt in moving:
        RestartAttempt.objects.filter(pk=attempt.pk, claimed_until=attempt.claimed_until).update(claimed_until=None)
    return outcome


def _due(now: datetime) -> list[RestartAttempt]:
    # No claim lasts and no stage waits for so long: a later time is of a clock that has been set back since.
    wrong = now + 2 * CLAIM
    free = Q(claimed_until=None) | Q(claimed_until__lte=now) | Q(claimed_until__gt=wrong)
    step = Q(next_step_at__lte=now) | Q(next_step_at__gt=wrong)
    due = RestartAttempt.objects.filter(free, step).exclude(state__in=ENDED)
    return list(due.order_by("next_step_at", "id")[:BATCH])


def _claim(attempt: RestartAttempt, seen: datetime | None, now: datetime) -> RestartAttempt | None:
    """The row as it is once the claim is ours; None when it is another's."""
    open_row = RestartAttempt.objects.filter(pk=attempt.pk, claimed_until=seen).exclude(state__in=ENDED)
    if not open_row.update(claimed_until=now + CLAIM):
        return None
    return RestartAttempt.objects.select_related(*RELATED).get(pk=attempt.pk)


def _one_round(
    moving: Iterable[RestartAttempt], moment: Callable[[], datetime], outcome: Counter[str]
) -> list[RestartAttempt]:
    """One stage of each; returns those that go on at once."""
    begun = moment()
    planned = [(attempt, plan) for attempt in moving if (plan := _plan(attempt, begun))]
    answers = iter(call_all([Call(attempt.job.cluster, plan) for attempt, plan in planned if callable(plan)]))
    now = moment()  # an act may take long, as a command does that starts a job
    further: list[RestartAttempt] = []
    for attempt, plan in planned:
        result = _settle(attempt, next(answers) if callable(plan) else None, None if callable(plan) else plan, now)
        if result == "moved" and (claimed := _claim(attempt, attempt.claimed_until, now)):
            further.append(claimed)
        else:
            outcome[result] += 1
    return further


def _plan(attempt: RestartAttempt, now: datetime) -> Act | Outcome | None:
    try:
        return STAGES[AttemptState(attempt.state)].plan(attempt, now)
    except Overtaken:
        return None


def _settle(attempt: RestartAttempt, answer: object, decided: Outcome | None, now: datetime) -> str:
    try:
        with transaction.atomic():
            return apply(attempt, answer, decided, now)
    except Overtaken:
        return "overtaken by another worker"
