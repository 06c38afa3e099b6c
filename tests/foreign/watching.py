"""Waymark as it watches the programs of a test: clusters of all three discoveries, and what is stored about a query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.utils import timezone

from dashboard.access import tokens
from monitoring.models import (
    Checkpoint,
    CheckpointStatus,
    Cluster,
    Discovery,
    Job,
    ReportedBatch,
    Run,
    RunException,
    WatchedQuery,
)
from monitoring.polling.poller import Poller
from tests.foreign.foreign_programs import Place
from tests.waiting import eventually

Json = dict[str, Any]


class Waymark:
    """The clusters `directory`, `logs` and `agent`, each with the programs of one place."""

    def __init__(self, place: Place, url: str, user: User) -> None:
        self.directory = Cluster.objects.create(
            name="directory", discovery=Discovery.DIRECTORY, rest_url=str(place.checkpoints)
        )
        self.logs = Cluster.objects.create(name="logs", discovery=Discovery.EVENT_LOG, rest_url=str(place.logs))
        self.agent = Cluster.objects.create(name="agent", discovery=Discovery.AGENT)
        now = timezone.now()
        made = tokens.make(user, "agent", False, now + timedelta(days=1), "ann", now, reports_for=self.agent)
        self.variables = {"WAYMARK_URL": url, "WAYMARK_TOKEN": made.secret}
        self._poller: Poller | None = None

    @contextmanager
    def polling(self) -> Iterator[None]:
        with Poller(timezone.now) as self._poller:
            yield
        self._poller = None

    def poll(self) -> bool:
        """Poll all clusters once. Each poll scans the directories from their beginning."""
        assert self._poller is not None
        for cluster in Cluster.objects.filter(discovery=Discovery.DIRECTORY).exclude(scan={}):
            Cluster.objects.filter(pk=cluster.pk).update(scan=cluster.scan | {"ended_ms": 0})
        Cluster.objects.update(next_poll_at=None, read_until=None)
        self._poller.start_due()
        while self._poller.in_flight:
            self._poller.serve(30.0)
        assert set(Cluster.objects.values_list("last_error", flat=True)) == {""}
        return True

    def sees_only(self, *clusters: Cluster, forgets: bool = True) -> None:
        """Forget all jobs, and poll only these clusters until nothing new is stored."""
        Cluster.objects.update(enabled=False)
        Cluster.objects.filter(pk__in=[each.pk for each in clusters]).update(enabled=True)
        if forgets:
            WatchedQuery.objects.all().delete()
            Job.objects.all().delete()
        with self.polling():
            before = -1
            while before != (before := _stored()):
                for _ in range(4):
                    self.poll()


def _stored() -> int:
    return Checkpoint.objects.filter(status=CheckpointStatus.COMPLETED).count() + RunException.objects.count()


class Stored:
    """What is stored about a query, which Spark has reported with this progress."""

    def __init__(self, cluster: Cluster, query_id: str) -> None:
        self.query = WatchedQuery.objects.select_related("job").get(query_id=UUID(query_id).hex)
        assert self.query.job is not None
        self.job = self.query.job
        assert self.job.cluster_id == cluster.pk
        self.runs = list(Run.objects.filter(job=self.job).order_by("number"))

    @property
    def run(self) -> Run:
        return self.runs[-1]

    def batches(self, status: str = CheckpointStatus.COMPLETED) -> dict[int, Checkpoint]:
        rows = Checkpoint.objects.filter(run__job=self.job, status=status)
        found = {row.checkpoint_id: row for row in rows}
        assert len(found) == rows.count()
        return found

    def progress(self, run_id: str) -> dict[int, Json]:
        rows = ReportedBatch.objects.filter(run__cluster=self.job.cluster, run__run_id=UUID(run_id).hex)
        return dict(rows.values_list("batch_id", "progress"))

    def exceptions(self) -> list[RunException]:
        return list(RunException.objects.filter(run__job=self.job))


def milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def at_ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)


def until(waymark: Waymark, what: str, condition: Any) -> None:
    """Poll until the condition holds."""
    eventually(what, lambda: waymark.poll() and condition())
