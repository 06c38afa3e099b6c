"""What is stored of a cluster before a flight starts: one frozen snapshot that decides what has to be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, Q, Subquery

from monitoring.engine.connection import Connection, connection_of
from monitoring.engine.errors import NotAsked
from monitoring.models import Checkpoint, Cluster, Run, RunState
from monitoring.polling.claim import Claim

# The engine's clock may be as far behind ours. Meanwhile a run that moved is read again, which changes nothing.
CLOCKS_APART = timedelta(minutes=1)


@dataclass(frozen=True)
class KnownRun:
    """`unfinished`: ids of stored checkpoints that are pending, or whose figures per subtask are still to be read."""

    state: str
    observed_at: datetime
    vertices: tuple[str, ...]
    has_config: bool
    restored_at: datetime | None
    newest_checkpoint: int | None
    unfinished: frozenset[int]
    next_read_at: datetime | None
    final_read_done: bool

    def moved(self, moved_at: datetime | None) -> bool:
        """Whether the job may have left its state, and perhaps come back to it, since it was last looked at."""
        return moved_at is not None and moved_at > self.observed_at - CLOCKS_APART

    def due(self, state: str, moved_at: datetime | None, now: datetime) -> bool:
        """Whether the run has to be read, given what the engine reports of it now."""
        if state != self.state:
            return True
        if RunState(state).terminal:
            return not self.final_read_done
        return self.next_read_at is None or self.next_read_at <= now or self.moved(moved_at)


@dataclass(frozen=True)
class KnownCluster:
    connection: Connection | NotAsked  # the latter: why it cannot be asked
    needs_version: bool
    runs: Mapping[str, KnownRun]  # by engine job id: those live, not read to the end, or named by the last answer


def known_cluster(claim: Claim) -> KnownCluster:
    cluster = Cluster.objects.get(pk=claim.cluster_id)
    return KnownCluster(
        connection=_connection(cluster),
        needs_version=not cluster.version or not cluster.reachable,
        runs=_known_runs(cluster),
    )


def _connection(cluster: Cluster) -> Connection | NotAsked:
    try:
        return connection_of(cluster)
    except NotAsked as error:
        return error


def _known_runs(cluster: Cluster) -> dict[str, KnownRun]:
    stored = Checkpoint.objects.filter(run=OuterRef("pk"))
    runs = Run.objects.filter(job__cluster=cluster, superseded=False).annotate(
        newest_checkpoint=Subquery(stored.order_by("-checkpoint_id").values("checkpoint_id")[:1]),
        unfinished=ArraySubquery(stored.filter(final=False).order_by().values("checkpoint_id")),
    )
    interesting = Q(final_read_done=False) | ~Q(state__in=[state for state in RunState if state.terminal])
    if cluster.last_answer_at is not None:
        interesting |= Q(observed_at__gte=cluster.last_answer_at)
    return {
        run.engine_job_id: KnownRun(
            state=run.state,
            observed_at=run.observed_at,
            vertices=tuple(vertex["id"] for vertex in run.vertices),
            has_config=bool(run.checkpoint_config),
            restored_at=run.restored_at,
            newest_checkpoint=run.newest_checkpoint,
            unfinished=frozenset(run.unfinished),
            next_read_at=run.next_read_at,
            final_read_done=run.final_read_done,
        )
        for run in runs.filter(interesting)
    }
