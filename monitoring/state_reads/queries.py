"""Store queries about the state in a snapshot. Only stored snapshots of PySpark jobs can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from monitoring import audit
from monitoring.models import Checkpoint, CheckpointStatus, Engine, Job, StateRead, StateReadKind, StateReadState
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason
from monitoring.reasons.state_reads import StateReadReason

KEPT_A_JOB = 40
KEPT_FOR = timedelta(days=1)  # the answers contain data of the job, so they are deleted soon
MOST_WAITING = 20
OFFERED = 12


class StateReadRefused(Exception):
    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True)
class StateQuery:
    """The arguments of `manage.py state`. Empty values and None are left out."""

    kind: StateReadKind
    query: str = ""
    operator: int | None = None
    view: str = ""
    key_field: str = ""
    key_text: str = ""
    contains: str = ""
    partition: int | None = None
    most: int = 100


def snapshots(job: Job) -> Sequence[Checkpoint]:
    """Return the newest checkpoints and savepoints whose files may still exist, newest first."""
    if job.cluster.engine != Engine.SPARK:
        return []
    there = (
        Checkpoint.objects.filter(run__job=job).there().select_related("run").defer("run__exceptions", "run__summary")
    )
    newest = [
        each
        for is_savepoint in (False, True)
        for each in there.filter(is_savepoint=is_savepoint).order_by("-triggered_at")[:OFFERED]
    ]
    return sorted(newest, key=lambda each: each.triggered_at, reverse=True)


def snapshot_of(job: Job, pk: int) -> Checkpoint | None:
    """Return a completed stored snapshot of this job, even one that is too old to be offered."""
    if job.cluster.engine != Engine.SPARK:
        return None
    found = Checkpoint.objects.filter(run__job=job, pk=pk, status=CheckpointStatus.COMPLETED).exclude(external_path="")
    return found.select_related("run").first()


def label_of(checkpoint: Checkpoint) -> Reason:
    code = StateReadReason.SAVEPOINT if checkpoint.is_savepoint else StateReadReason.CHECKPOINT
    return code(number=checkpoint.checkpoint_id, run=checkpoint.run.number)


def store_query(
    job: Job, snapshot: Checkpoint, question: StateQuery, by: str, now: datetime, other: Checkpoint | None = None
) -> StateRead:
    """Store the query and return its row. If the same query is already waiting, return that one.

    Raises StateReadRefused.
    """
    for each in (snapshot, other):
        if each is not None and each.run.job_id != job.pk:
            raise StateReadRefused(StateReadReason.SNAPSHOT_OF_ANOTHER_JOB(number=each.checkpoint_id))
    asked = _fields(job, snapshot, question, other)
    waiting = StateRead.objects.filter(state__in=[s for s in StateReadState if s.open])
    if (same := waiting.filter(**asked).first()) is not None:
        return same
    if waiting.count() >= MOST_WAITING:
        raise StateReadRefused(StateReadReason.TOO_MANY(count=MOST_WAITING))
    with transaction.atomic():
        forget(job, now)
        label = label_of(snapshot)
        audit.record(by, "state.read", f"job {job.name}", snapshot=str(label), asked=str(question.kind.label))
        labels = columns("label", label) | columns("other_label", label_of(other) if other else "")
        return StateRead.objects.create(asked_by=by, asked_at=now, **asked, **labels)


def _fields(job: Job, snapshot: Checkpoint, question: StateQuery, other: Checkpoint | None) -> dict[str, object]:
    return {
        "job": job,
        "snapshot": snapshot.pk,
        "location": snapshot.external_path,
        "other_snapshot": other.pk if other else None,
        "other_location": other.external_path if other else "",
        **vars(question),
    }


def forget(job: Job, now: datetime) -> None:
    """Delete old answers, and all but the newest answers of the job."""
    ended = StateRead.objects.exclude(state__in=[s for s in StateReadState if s.open])
    ended.filter(asked_at__lt=now - KEPT_FOR).delete()
    of_job = ended.filter(job=job).order_by("-asked_at", "-id").values_list("pk", flat=True)
    StateRead.objects.filter(pk__in=list(of_job[KEPT_A_JOB - 1 :])).delete()
