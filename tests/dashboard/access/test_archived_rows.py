"""Only readers of its job see an archived row, and the access check reads no file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import resolve

from dashboard.access.guard import guard
from dashboard.access.subjects import Archived, subject_of
from monitoring.models import Account, ArchivedFile, ArchivedKind, Checkpoint, Grant, Job, OperatorCheckpoint
from tests.monitoring.conftest import Rows
from tests.monitoring.history.archive_rows import OLD, fill, move
from tests.monitoring.history.conftest import archive

__all__ = ["archive"]


@dataclass(frozen=True)
class ArchivedRows:
    """An archived checkpoint with an operator, another job of its cluster, and a job of another cluster."""

    job: Job
    neighbour: Job
    stranger: Job
    checkpoint: int
    operator: int

    @property
    def paths(self) -> list[str]:
        pages = [f"/checkpoints/{self.checkpoint}/", f"/operators/{self.operator}/"]
        api = [f"/api/v1/checkpoints/{self.checkpoint}", f"/api/v1/operators/{self.operator}"]
        return [*pages, f"/checkpoints/{self.checkpoint}/subtasks.csv", *api]


@pytest.fixture
def archived_rows(db: None, archive: Path, settings: Any) -> ArchivedRows:
    settings.API_CALLS_PER_MINUTE = 100_000
    rows = Rows()
    run, stranger = fill(rows, 5), fill(rows, 5)
    neighbour = fill(rows, 5, cluster=run.job.cluster)
    checkpoint = Checkpoint.objects.get(run=run, checkpoint_id=2)
    operator = OperatorCheckpoint.objects.get(checkpoint=checkpoint, name="source")
    for runs in ([run, neighbour], [stranger]):
        for kind in (ArchivedKind.OPERATORS, ArchivedKind.CHECKPOINTS):
            move(kind, runs, OLD.date().replace(day=1))
    assert not Checkpoint.objects.filter(pk=checkpoint.pk).exists()
    return ArchivedRows(run.job, neighbour.job, stranger.job, checkpoint.pk, operator.pk)


@pytest.fixture
def reader_of(db: None, now: datetime) -> Callable[..., User]:
    """Return a function that creates an account with one grant and nothing else."""

    def make_one(**values: Any) -> User:
        user = User.objects.create_user(f"reader {User.objects.count()}")
        Account.objects.create(user=user, granted_only=True)
        Grant.objects.create(user=user, role="viewer", created_at=now, created_by="admin", **values)
        return user

    return make_one


def statuses(user: User, archived_rows: ArchivedRows) -> list[int]:
    client = Client()
    client.force_login(user)
    return [client.get(path).status_code for path in archived_rows.paths]


def files_were_read() -> bool:
    """Return whether a file was read. The files are deleted, so each attempt stores a problem."""
    return ArchivedFile.objects.exclude(problem="").exists()


def test_archived_row_is_visible_only_to_readers_of_its_job_or_cluster(
    archived_rows: ArchivedRows, reader_of: Callable[..., User]
) -> None:
    assert statuses(reader_of(selector=f"job={archived_rows.job.name}"), archived_rows) == [200] * 5
    assert statuses(reader_of(cluster=archived_rows.job.cluster), archived_rows) == [200] * 5
    assert statuses(reader_of(selector=f"job={archived_rows.neighbour.name}"), archived_rows) == [404] * 5
    assert statuses(reader_of(cluster=archived_rows.stranger.cluster), archived_rows) == [404] * 5


def test_the_check_reads_no_file(archived_rows: ArchivedRows, reader_of: Callable[..., User], archive: Path) -> None:
    for file in archive.rglob("*.parquet"):
        file.unlink()

    archived = Archived(frozenset({archived_rows.job.cluster_id}))
    assert subject_of("checkpoints/<int:pk>/", {"pk": archived_rows.checkpoint}) == archived
    assert subject_of("operators/<int:pk>/", {"pk": archived_rows.operator}) == archived
    assert statuses(reader_of(cluster=archived_rows.stranger.cluster), archived_rows) == [404] * 5
    assert not files_were_read()


def test_unreadable_file_is_reported_to_unrestricted_readers(
    archived_rows: ArchivedRows, reader_of: Callable[..., User], archive: Path, viewer_user: User
) -> None:
    for file in archive.rglob("*.parquet"):
        file.unlink()

    assert statuses(reader_of(cluster=archived_rows.job.cluster), archived_rows) == [404] * 5
    assert statuses(viewer_user, archived_rows) == [503] * 5
    assert files_were_read()


def test_view_without_a_permission_check_returns_404(
    archived_rows: ArchivedRows, reader_of: Callable[..., User]
) -> None:
    request = RequestFactory().get(archived_rows.paths[0])
    request.user = reader_of(cluster=archived_rows.job.cluster)
    request.resolver_match = resolve(archived_rows.paths[0])

    def view(request: HttpRequest) -> HttpResponse:
        middleware.process_view(request, None, (), {"pk": archived_rows.checkpoint})
        return HttpResponse("a row")

    middleware = guard(view)
    with pytest.raises(Http404):
        middleware(request)
