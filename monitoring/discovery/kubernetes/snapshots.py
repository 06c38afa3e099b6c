"""List the savepoints that the Flink operator took among those of their jobs. Waymark never deletes them.

The operator deletes the files when somebody deletes the resource, unless `disposeOnDelete` is false. Then Waymark does
not restore from them any more.
"""

from __future__ import annotations

from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils.dateparse import parse_datetime

from monitoring.kubernetes.flink_operator import trigger_id_in
from monitoring.kubernetes.kinds import FLINK_DEPLOYMENT, FLINK_SESSION_JOB, FLINK_SNAPSHOT
from monitoring.models import DiscoverySource, FoundResource, Run, Savepoint, SavepointOrigin, SavepointState
from monitoring.reasons.columns import columns
from monitoring.reasons.discoveries import DiscoveryReason
from monitoring.savepoints.history import spellings

# Origins that say only that Waymark did not request the savepoint.
_NOT_REQUESTED = (SavepointOrigin.ADOPTED, SavepointOrigin.FINAL)


def list_savepoints(source: DiscoverySource, now: datetime) -> None:
    """Store the completed savepoints whose job is known, and note those whose resource is deleted."""
    rows = source.found_resources.filter(kind=FLINK_SNAPSHOT.key)
    new = rows.filter(
        gone_at=None, given={}, state__snapshot="COMPLETED", state__type="savepoint", state__has_key="path"
    )
    for row in new:
        run = _run_of(row)
        if run is not None and not _is_requested(row):
            _store(row, run, now)
    for row in rows.exclude(gone_at=None).exclude(given={}):
        _note_deleted(row, now)


def _is_requested(row: FoundResource) -> bool:
    """Return whether Waymark has requested the savepoint, so that its row exists."""
    return Savepoint.objects.filter(trigger_id=trigger_id_in(row.name)).exists()


def _run_of(row: FoundResource) -> Run | None:
    """Return the run that the snapshot was taken of: the last one that had started by then."""
    kind = FLINK_SESSION_JOB if row.state.get("job_kind") == "FlinkSessionJob" else FLINK_DEPLOYMENT
    same = row.source.found_resources.filter(namespace=row.namespace, gone_at=None)
    of = same.filter(kind=kind.key, name=row.state.get("job_resource", "")).first()
    deployment = of and same.filter(kind=FLINK_DEPLOYMENT.key, name=of.deployment).exclude(cluster=None).first()
    if of is None or deployment is None:
        return None
    runs = Run.objects.filter(job__cluster=deployment.cluster)
    known = runs.filter(engine_job_id=of.state.get("job_id", "")).select_related("job").first()
    if known is None:
        return None
    taken_at = _time(row, "triggered_at", row.found_at)
    return runs.filter(job=known.job, started_at__lte=taken_at).order_by("-number").first() or known


def _store(row: FoundResource, run: Run, now: datetime) -> None:
    path = row.state["path"]
    try:
        with transaction.atomic():
            savepoint = Savepoint.objects.filter(job=run.job_id, path__in=spellings(path)).first()
            if savepoint is None:
                requested_at = _time(row, "triggered_at", row.found_at)
                completed_at = _time(row, "completed_at", requested_at)
                savepoint = Savepoint.objects.create(
                    job_id=run.job_id,
                    run=run,
                    origin=SavepointOrigin.OPERATOR,
                    state=SavepointState.COMPLETED,
                    path=path,
                    requested_at=requested_at,
                    completed_at=completed_at,
                    next_check_at=now,
                )
            elif savepoint.origin in _NOT_REQUESTED and savepoint.state == SavepointState.COMPLETED:
                Savepoint.objects.filter(pk=savepoint.pk).update(origin=SavepointOrigin.OPERATOR)
            FoundResource.objects.filter(pk=row.pk).update(given={"savepoint": savepoint.pk})
    except IntegrityError:
        pass  # a poll has adopted it at the same time, and the next round marks it


def _note_deleted(row: FoundResource, now: datetime) -> None:
    if row.state.get("kept") != "true":
        deleted = Savepoint.objects.filter(pk=row.given.get("savepoint"), origin=SavepointOrigin.OPERATOR, gone_at=None)
        problem = DiscoveryReason.SNAPSHOT_DELETED(snapshot=str(row))
        deleted.update(gone_at=now, checked_at=now, **columns("problem", problem))
    FoundResource.objects.filter(pk=row.pk).update(given={})


def _time(row: FoundResource, name: str, default: datetime) -> datetime:
    try:
        found = parse_datetime(row.state.get(name, ""))
    except ValueError:
        return default
    return found if found is not None and found.tzinfo is not None else default
