"""Store one observation of a cluster and give its claim back, in one transaction."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import transaction

from monitoring import bulk, outages
from monitoring.discovery.platform import has_one_job, is_over, may_live, reported_ends
from monitoring.engine import leaders
from monitoring.engine.answers import JobOverview, ManagerConfig
from monitoring.engine.evidence import EMPTY_HOLD_DOWN, HOLD_DOWN, Answered, ClusterAnswer, NoAnswer
from monitoring.engine.identity import application_in, identity_of
from monitoring.engine.versions import EngineVersion
from monitoring.models import Cluster, Engine, Run
from monitoring.polling import history, plan, runs, shared_queries
from monitoring.polling.adoption import adopt_savepoints, mark_final
from monitoring.polling.claim import Claim, ClaimLost, locked
from monitoring.polling.known import TERMINAL, KnownCluster, StoredAnswer, named_runs
from monitoring.polling.observation import ClusterObservation
from monitoring.polling.recording import record
from monitoring.reasons import columns as reasons
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason
from monitoring.reasons.work import WorkReason
from monitoring.savepoints.stops import canceled_ends, stopped_ends

# How often savepoints without a row are looked up even if no answer shows a new one: one that seemed to belong to a
# request of Waymark may not.
ADOPTION = timedelta(seconds=10)
_POLLING = (
    *("engine", "version", "next_poll_at", "poll_claimed_by", "poll_claimed_until", "read_until", "last_answer_at"),
    *("unreachable_since", "consecutive_failures", "last_error", "last_error_value"),
    *("revision", "history_length", "answers_kept_s", "identity", "stranger", "scan"),
)


def store(
    claim: Claim, observation: ClusterObservation, now: datetime, polled_at: datetime
) -> tuple[Reason | None, KnownCluster]:
    """Store the observation. Return what changed, and the new copy of the rows.

    `polled_at`: when the poll began. Raises ClaimLost; then nothing was stored.
    """
    if _is_outdated(claim.cluster, observation, now) and not outages.is_late(claim.cluster, polled_at):
        return None, _nothing_new(claim, observation, now, polled_at)
    with transaction.atomic():
        return _store(locked(claim), observation, now, polled_at)


def _is_outdated(cluster: Cluster, observation: ClusterObservation, now: datetime) -> bool:
    """Return whether there is nothing to store except that the cluster answered."""
    adopted_at = observation.known.adopted_at
    return (
        isinstance(observation.answer, Answered)
        and observation.scan in (None, cluster.scan)
        and not observation.problem
        and not (observation.runs or observation.missing or observation.overview or observation.manager)
        and cluster.reachable
        and not cluster.last_error
        and adopted_at is not None
        and now - adopted_at < ADOPTION
    )


def _nothing_new(claim: Claim, observation: ClusterObservation, now: datetime, polled_at: datetime) -> KnownCluster:
    cluster = claim.cluster
    held = Cluster.objects.filter(pk=cluster.pk, poll_claimed_by=claim.token)
    if not held.update(
        poll_claimed_by="",
        poll_claimed_until=None,
        last_answer_at=now,
        read_until=polled_at,
        next_poll_at=_next_poll(cluster, observation.known, polled_at, now),
    ):
        raise ClaimLost
    return replace(observation.known, jobs=_jobs(observation))


@transaction.atomic
def postpone(claim: Claim, why: str, now: datetime) -> None:
    """Count a failure for a cluster whose observation cannot be stored, and poll it again later."""
    cluster = locked(claim)
    _failed(cluster, why, now)
    _save(cluster)


def _save(cluster: Cluster) -> None:
    bulk.update(Cluster, [{"id": cluster.pk, **{column: getattr(cluster, column) for column in _POLLING}}], _POLLING)


def _store(
    cluster: Cluster, observation: ClusterObservation, now: datetime, polled_at: datetime
) -> tuple[Reason | None, KnownCluster]:
    outages.note_lateness(cluster, polled_at)
    match observation.answer:
        case NoAnswer(why, archived, is_silence):
            canceled = canceled_ends(cluster, now) if is_silence else {}
            ends = {**canceled, **stopped_ends(cluster, now), **reported_ends(cluster), **archived}
            silence = NoAnswer(leaders.silence(cluster, why), ends)
            changed, known = _no_answer(cluster, silence, observation, now, polled_at)
        case Answered():
            changed, known = _answered(cluster, observation.answer, observation, now, polled_at)
            cluster.read_until = polled_at
    cluster.poll_claimed_by, cluster.poll_claimed_until = "", None
    if observation.scan is not None:
        cluster.scan = dict(observation.scan)
    _save(cluster)
    return changed, replace(known, revision=cluster.revision)


def _no_answer(
    cluster: Cluster, answer: NoAnswer, observation: ClusterObservation, now: datetime, polled_at: datetime
) -> tuple[Reason | None, KnownCluster]:
    """Store that the cluster did not answer.

    This alone proves nothing about its jobs, so every hold-down starts again. Only runs in `answer.ends` have ended.
    """
    appeared = observation.stranger is not None and cluster.stranger is None
    if observation.stranger is not None:
        cluster.stranger = observation.stranger.as_row()
    changed = None
    if cluster.reachable or appeared:
        code = WorkReason.CLUSTER_REPLACED if appeared else WorkReason.CLUSTER_SILENT
        changed = code(cluster=str(cluster), why=answer.why)
        outages.note_silence(cluster, answer.why, now)
    cluster.unreachable_since = cluster.unreachable_since or now
    had_ended = cluster.has_ended and not may_live(cluster)
    _failed(cluster, answer.why, now)
    held_down = Run.objects.filter(job__cluster=cluster, missing_since__isnull=False)
    if held_down.update(missing_since=None, missing_polls=0):
        cluster.revision += 1
    known: KnownCluster = observation.known
    events: list[Reason] = []
    if answer.ends:
        known, events = _end_reported(cluster, answer, observation, now, polled_at)
    if cluster.stranger is None and _has_ended(cluster, is_explained=had_ended or bool(answer.ends)):
        reasons.store(cluster, "last_error", EngineReason.CLUSTER_ENDED())
        outages.note_answer(cluster, now)
    return (WorkReason.POLLED(cluster=str(cluster), events=events) if events else changed), known


def _end_reported(
    cluster: Cluster, answer: NoAnswer, observation: ClusterObservation, now: datetime, polled_at: datetime
) -> tuple[KnownCluster, list[Reason]]:
    """End the runs whose end another source reports, and store what it shows of them."""
    missing = frozenset(answer.ends.keys() - observation.runs.keys())
    found, _, _ = _store_runs(cluster, answer, replace(observation, missing=missing), now, polled_at, timedelta())
    if found.changes or observation.runs:
        cluster.revision += 1
    if observation.runs:
        adopt_savepoints(cluster, [each.run.pk for each in found.named()])
    before = {job_id: run for job_id, run in observation.known.runs.items() if job_id not in answer.ends}
    unread = {job_id: run for job_id, run in named_runs(cluster, answer.ends.keys()).items() if run.is_expected}
    return replace(observation.known, runs=before | unread), found.events


def _has_ended(cluster: Cluster, *, is_explained: bool) -> bool:
    """Return whether the cluster is silent because it has ended with its only job.

    If another job manager may take the job over, the silence is explained only by another source: now, or in an earlier
    poll of this silence (`is_explained`).
    """
    application = application_in(cluster.identity)
    is_final = application is not None and not application.takeover_s
    if not has_one_job(cluster) or not (is_explained or is_final or is_over(cluster)):
        return False
    of_cluster = Run.objects.filter(job__cluster=cluster)
    return of_cluster.exists() and not of_cluster.exclude(state__in=TERMINAL).exists()


def _failed(cluster: Cluster, why: Reason | str, now: datetime) -> None:
    cluster.poll_claimed_by, cluster.poll_claimed_until = "", None
    cluster.consecutive_failures += 1
    reasons.store(cluster, "last_error", why)
    failures, jitter = cluster.consecutive_failures, random.random()
    cluster.next_poll_at = plan.next_try(now, cluster.poll_interval_s, failures, jitter)


def _answered(
    cluster: Cluster, answer: Answered, observation: ClusterObservation, now: datetime, polled_at: datetime
) -> tuple[Reason | None, KnownCluster]:
    observation = shared_queries.settle(cluster, observation, now)
    shared_queries.continue_imported(cluster, observation, now)
    found, written, planned = _store_runs(cluster, answer, observation, now, polled_at, _answers_kept(cluster))
    adopted = _adopt(cluster, observation, found, now)
    mark_final([each.run for each in found.named() if each.observed and each.observed.own_end])
    back = [] if cluster.reachable else [WorkReason.CLUSTER_BACK(cluster=str(cluster))]
    if observation.runs or observation.missing:
        cluster.revision += 1
    _remember_answer(cluster, observation, found, now)
    known = _known(cluster, observation, found, now, adopted_now=adopted is not None)
    planned = [_next_poll(cluster, known, polled_at, now), *planned, *_ends_of_hold_downs(found, now)]
    cluster.next_poll_at = min(planned)
    return _changed(cluster, [*back, *found.events], written, adopted or 0), known


def _store_runs(
    cluster: Cluster,
    answer: ClusterAnswer,
    observation: ClusterObservation,
    now: datetime,
    polled_at: datetime,
    kept: timedelta,
) -> tuple[runs.Runs, history.HistoryChanges, list[datetime]]:
    """Store what was read of the runs, and what the answer proves about them.

    Return the runs, the changes of their checkpoints, and when runs that have ended must be read again. `kept`: how
    long the engine may repeat an old answer.
    """
    found = runs.load(cluster, observation)
    stored = history.stored_checkpoints(found.named())
    ends_within = shared_queries.CLOCKS_DIFFER if cluster.only_watched else None
    reused = history.reused(found.named(), stored, ends_within) | runs.redeployed(found.named())
    runs.supersede(found, reused, now)
    runs.create_missing(cluster, observation, found, now)
    runs.move_checkpoints(found)
    runs.apply_evidence(cluster, answer, found, now)
    runs.remember_answers(found, now)
    written = history.write(found.named(), stored, now)
    history.end_pending(found.ended, now)
    planned = _close_final_reads(found, polled_at, kept)
    runs.save(found)
    record([(each.run, each.observed) for each in found.named() if each.observed], now)
    runs.remember_launches(found.named(), now)
    return found, written, planned


def _remember_manager(cluster: Cluster, manager: ManagerConfig | None) -> None:
    """Store the identity and settings of the job manager that answered, and clear an earlier stranger."""
    cluster.stranger = None
    if manager is not None:
        found = identity_of(manager.settings)
        cluster.identity = found.as_row() if found else cluster.identity
        cluster.history_length = manager.history_length
        cluster.answers_kept_s = manager.answers_kept_s


def _close_final_reads(found: runs.Runs, polled_at: datetime, kept: timedelta) -> list[datetime]:
    """Mark ended runs as completely read if nothing is unread and the answer cannot be from before the end.

    Return when the other runs may be read, because a restart waits for that.
    """
    read = [
        each.run
        for each in found.named()
        if each.observed and each.observed.due and not each.observed.problem and not each.run.live
    ]
    unfinished = history.unfinished_runs(read)
    planned: list[datetime] = []
    for run in read:
        early = run.end_seen_at is not None and polled_at < run.end_seen_at + kept
        run.final_read_done = not early and run.pk not in unfinished
        if early and run.end_seen_at is not None:
            planned.append(run.end_seen_at + kept)
    return planned


def _answers_kept(cluster: Cluster) -> timedelta:
    if cluster.engine != Engine.FLINK:
        return timedelta()
    reported = plan.ANSWERS_KEPT if cluster.answers_kept_s is None else timedelta(seconds=cluster.answers_kept_s)
    return reported + plan.KEPT_LONGER


def _ends_of_hold_downs(found: runs.Runs, now: datetime) -> list[datetime]:
    """Return when runs that the engine does not list may be marked as LOST."""
    missing = [each.run.missing_since for each in found.stored if each.run.missing_since is not None]
    ends = [since + hold for since in missing for hold in (HOLD_DOWN, EMPTY_HOLD_DOWN)]
    return [end for end in ends if end > now]


def _adopt(cluster: Cluster, observation: ClusterObservation, found: runs.Runs, now: datetime) -> int | None:
    """Adopt savepoints; return how many, or None if it was not yet time to look for them."""
    shown = any(
        entry.is_savepoint
        for each in found.named()
        if each.observed is not None and each.observed.checkpoints is not None
        for entry in each.observed.checkpoints.entries
    )
    adopted_at = observation.known.adopted_at
    if not shown and adopted_at is not None and now - adopted_at < ADOPTION:
        return None
    return len(adopt_savepoints(cluster, [each.run.pk for each in found.named()]))


def _remember_answer(cluster: Cluster, observation: ClusterObservation, found: runs.Runs, now: datetime) -> None:
    said = (observation.problem, *(each.problem for each in observation.runs.values()))
    problems = [problem for problem in said if problem]
    if not cluster.reachable:
        outages.note_answer(cluster, now)
    cluster.last_answer_at = now
    cluster.unreachable_since = None
    cluster.consecutive_failures = 0
    reasons.store(cluster, "last_error", problems[0] if problems else "")
    if observation.overview is not None:
        cluster.version = observation.overview.version[:50]
        cluster.engine = _engine(EngineVersion.parse(cluster.version))
    _remember_manager(cluster, observation.manager)
    reported = [each.checkpoints.history_length for each in observation.runs.values() if each.checkpoints is not None]
    cluster.history_length = max(filter(None, reported), default=cluster.history_length)


def _engine(version: EngineVersion) -> Engine:
    if version.watched:
        return Engine.STREAMING
    return Engine.SPARK if version.waymark else Engine.FLINK


def _known(
    cluster: Cluster, observation: ClusterObservation, found: runs.Runs, now: datetime, *, adopted_now: bool
) -> KnownCluster:
    """Return the new copy of the rows.

    Runs that were just stored are read back, because rows are the source of truth.
    """
    before, jobs = observation.known, _jobs(observation)
    written = named_runs(cluster, {each.run.engine_job_id for each in found.stored})
    gone = {each.run.engine_job_id for each in found.stored} - written.keys()
    known = {**before.runs, **written}
    kept = {job_id: run for job_id, run in known.items() if job_id not in gone and (job_id in jobs or run.is_expected)}
    answers = {job_id: answer for job_id, answer in before.answers.items() if job_id in kept}
    for job_id in written:
        observed = observation.runs.get(job_id)
        if observed is not None and observed.digest is not None and not observed.problem:
            reported = observed.checkpoints.entries if observed.checkpoints is not None else ()
            answers[job_id] = StoredAnswer(observed.digest, {entry.id: entry for entry in reported})
        elif observed is None or observed.checkpoints is not None:
            answers.pop(job_id, None)
    adopted_at = now if adopted_now else before.adopted_at
    return replace(before, runs=kept, jobs=jobs, answers=answers, adopted_at=adopted_at, needs_version=False)


def _jobs(observation: ClusterObservation) -> dict[str, JobOverview]:
    return dict(observation.answer.jobs) if isinstance(observation.answer, Answered) else {}


def _next_poll(cluster: Cluster, known: KnownCluster, polled_at: datetime, now: datetime) -> datetime:
    live = [run for run in known.runs.values() if run.live]
    if any(run.has_backlog for run in live):
        return now + timedelta(seconds=plan.BACKLOG_TICK_S)
    every_s = plan.tick_every_s(cluster.poll_interval_s, (run.schedule.every_s for run in live))
    return plan.next_tick(plan.PollSchedule.of(cluster.name, every_s), polled_at, now)


def _changed(cluster: Cluster, events: list[Reason], written: history.HistoryChanges, adopted: int) -> Reason | None:
    """Return a report of unusual events, or None. Completed checkpoints are not reported."""
    missed = sum(gap.last_id - gap.first_id + 1 for gap in written.gaps)
    counts = (
        (written.failed, WorkReason.CHECKPOINTS_FAILED),
        (missed, WorkReason.CHECKPOINTS_MISSED),
        (adopted, WorkReason.SAVEPOINTS_FOUND),
    )
    events = [*events, *(code(count=count) for count, code in counts if count)]
    return WorkReason.POLLED(cluster=str(cluster), events=events) if events else None
