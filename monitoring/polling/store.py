"""Writes one observation of one cluster, whole or not at all, and gives the claim back in the same transaction."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from monitoring.engine.evidence import Answered, NoAnswer
from monitoring.models import Cluster, Engine, Run
from monitoring.polling import history, plan, runs
from monitoring.polling.adoption import adopt_savepoints
from monitoring.polling.claim import Claim, locked
from monitoring.polling.observation import ClusterObservation
from monitoring.polling.recording import record

_POLLING = (
    *("engine", "version", "next_poll_at", "poll_claimed_until", "last_answer_at", "unreachable_since"),
    *("consecutive_failures", "last_error"),
)


@transaction.atomic
def store(claim: Claim, observation: ClusterObservation, now: datetime) -> str:
    """Returns what changed in a sentence, "" when nothing did. Raises ClaimLost, and then nothing was written."""
    cluster = locked(claim)
    cluster.poll_claimed_until = None
    match observation.answer:
        case NoAnswer(why):
            sentence = _no_answer(cluster, why, now)
        case Answered():
            sentence = _answered(cluster, observation.answer, observation, now)
    cluster.save(update_fields=_POLLING)
    return sentence


@transaction.atomic
def postpone(claim: Claim, why: str, now: datetime) -> None:
    """An observation that cannot be written must not stop the others: counted, and tried again later."""
    cluster = locked(claim)
    cluster.poll_claimed_until = None
    cluster.consecutive_failures += 1
    cluster.last_error = why
    cluster.next_poll_at = plan.next_try(now, cluster.poll_interval_s, cluster.consecutive_failures)
    cluster.save(update_fields=_POLLING)


def _no_answer(cluster: Cluster, why: str, now: datetime) -> str:
    """Nothing is concluded of any job, and every hold-down begins anew: silence proves nothing."""
    sentence = f"{cluster} does not answer: {why}" if cluster.reachable else ""
    cluster.unreachable_since = cluster.unreachable_since or now
    cluster.consecutive_failures += 1
    cluster.last_error = why
    cluster.next_poll_at = plan.next_try(now, cluster.poll_interval_s, cluster.consecutive_failures)
    Run.objects.filter(job__cluster=cluster, missing_since__isnull=False).update(missing_since=None, missing_polls=0)
    return sentence


def _answered(cluster: Cluster, answer: Answered, observation: ClusterObservation, now: datetime) -> str:
    found = runs.load(cluster, observation)
    stored = history.stored_checkpoints(found.named())
    runs.supersede(found, history.reused(found.named(), stored), now)
    runs.create_missing(cluster, observation, found, now)
    runs.apply_evidence(answer, found, now)
    runs.remember_answers(cluster, found, now)
    written = history.write(found.named(), stored, now)
    history.end_pending(found.ended, now)
    _close_final_reads(found)
    runs.save(found, now)
    record([(each.run, each.observed) for each in found.named() if each.observed], now)
    runs.remember_launches(found.named())
    adopted = adopt_savepoints(each.run for each in found.named() if each.observed and each.observed.due)
    back = [] if cluster.reachable else [f"{cluster} answers again"]
    _remember_answer(cluster, observation, found, now)
    return _sentence(cluster, [*back, *found.events], written, len(adopted))


def _close_final_reads(found: runs.Runs) -> None:
    """A terminal run is done with once a read of it left nothing unread."""
    read = [
        each.run
        for each in found.named()
        if each.observed and each.observed.due and not each.observed.problem and not each.run.live
    ]
    unfinished = history.unfinished_runs(read)
    for run in read:
        run.final_read_done = run.pk not in unfinished


def _remember_answer(cluster: Cluster, observation: ClusterObservation, found: runs.Runs, now: datetime) -> None:
    problems = [each.observed.problem for each in found.named() if each.observed and each.observed.problem]
    cluster.last_answer_at = now
    cluster.unreachable_since = None
    cluster.consecutive_failures = 0
    cluster.last_error = problems[0] if problems else ""
    if observation.overview is not None:
        cluster.version = observation.overview.version[:50]
        cluster.engine = Engine.SPARK if cluster.version.startswith("waymark") else Engine.FLINK
    due = (each.run.next_read_at for each in found.named() if each.run.live)
    cluster.next_poll_at = plan.next_poll(now, cluster.poll_interval_s, due)


def _sentence(cluster: Cluster, events: list[str], written: history.HistoryChanges, adopted: int) -> str:
    """Only what people would want to know of: a completed checkpoint is the normal course of things."""
    if written.failed:
        events = [*events, _count(written.failed, "checkpoint") + " failed"]
    missed = sum(gap.last_id - gap.first_id + 1 for gap in written.gaps)
    if missed:
        events = [*events, f"{_count(missed, 'checkpoint')} not seen: the engine had dropped them"]
    if adopted:
        events = [*events, f"{_count(adopted, 'savepoint')} found that others took"]
    return f"{cluster}: {'; '.join(events)}." if events else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
