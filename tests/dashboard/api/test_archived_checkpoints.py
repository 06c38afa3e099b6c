"""Archived checkpoints are shown, listed and downloaded like others, and unreadable files are reported."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from dashboard.access.subjects import Absent, Archived, subject_of
from dashboard.queries.history import ArchiveUnreadable, Cursor
from monitoring.alerts.incidents import Opening, open_incidents
from monitoring.history.archive import due, reading
from monitoring.history.quantiles import NotRolledUp, quantiles
from monitoring.models import ArchivedFile, Channel, Checkpoint, Run, Severity
from monitoring.notify.delivery import deliver_due
from monitoring.reasons.archive import ArchiveReason
from monitoring.savepoints.storage_threads import STORAGE_THREADS
from tests.monitoring.conftest import Rows
from tests.monitoring.history.archive_rows import MOVED, NOW, OLD, advance, fill
from tests.monitoring.history.conftest import Pipeline, archive, dsn_file, old, pipeline
from tests.monitoring.notify.conftest import mail_sink
from tests.waiting import eventually

__all__ = ["archive", "dsn_file", "mail_sink", "old", "pipeline"]
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]
KEPT = OLD + timedelta(hours=20)  # a time after all old checkpoints


@pytest.fixture
def run(old: Rows, pipeline: Pipeline) -> Run:
    made = fill(old, 60)
    fill(old, 10, checkpoints_only=True)
    pipeline.run()
    return made


def all_pages(api: Any, run: Run, **query: Any) -> list[dict[str, Any]]:
    found, cursor = [], ""
    while cursor is not None:
        page = api.get(f"/jobs/{run.job_id}/checkpoints", limit=37, cursor=cursor, **query).json()
        assert page["unreadable"] == []
        found += [{**item, "archived": None} for item in page["items"]]
        cursor = page["next"]
    return found


def history_of(viewer: Client, run: Run, **query: Any) -> list[int]:
    return [
        row.checkpoint.checkpoint_id for row in viewer.get(f"/jobs/{run.job_id}/history/", query).context["page"].rows
    ]


def test_archived_checkpoints_have_the_same_json(
    api: Any, viewer: Client, run: Run, pipeline: Pipeline, archive: Path
) -> None:
    one = Checkpoint.objects.get(run=run, checkpoint_id=7)
    operator = one.operators.first()
    slow = Checkpoint.objects.get(run=run, checkpoint_id=55)
    Checkpoint.objects.filter(pk=slow.pk).update(end_to_end_duration=600_000, sync_max=590_000)
    pipeline.run()
    files = [f"/jobs/{run.job_id}/download/history.csv{query}" for query in ("", "?status=FAILED", "?took=1030+ms")]
    files.append(f"/checkpoints/{one.pk}/subtasks.csv")
    files += [f"/jobs/{run.job_id}/download/compare.csv?a=7&b={b}" for b in ("8", "1/1009")]

    def responses() -> list[Any]:
        return [
            all_pages(api, run),
            all_pages(api, run, status="FAILED", until=KEPT.isoformat()),
            {**api.get(f"/checkpoints/{one.pk}").json(), "archived": None},
            api.get(f"/operators/{operator.pk}").json(),
            api.get(f"/checkpoints/{slow.pk}/diagnosis").json(),
            *(b"".join(viewer.get(file).streaming_content) for file in files),
            history_of(viewer, run, before=f"{KEPT.isoformat()}_0"),
            history_of(viewer, run, after=str(Cursor.beginning())),
            history_of(viewer, run, after=f"{(OLD + timedelta(hours=19)).isoformat()}_0"),
        ]

    before = responses()
    assert before[4], "the slow checkpoint has a cause"
    assert advance() == MOVED
    assert not Checkpoint.objects.filter(pk=one.pk).exists()
    assert responses() == before

    page = viewer.get(f"/checkpoints/{one.pk}/").content.decode()
    assert '<span class="tag">archived</span>' in page
    assert "Older: 6" in page
    assert before[4][0]["title"] in viewer.get(f"/checkpoints/{slow.pk}/").content.decode()
    assert "This job has no checkpoint 61." in viewer.get(
        f"/jobs/{run.job_id}/compare/", {"a": "7", "b": "61"}
    ).content.decode()  # fmt: skip
    assert "Subtasks of source" in viewer.get(f"/operators/{operator.pk}/").content.decode()
    shown = viewer.get(f"/jobs/{run.job_id}/history/", {"before": f"{KEPT.isoformat()}_0"}).content.decode()
    assert "60 archived" in shown
    assert shown.count('<span class="tag">archived</span>') == 25
    archived = Archived(frozenset({run.job.cluster_id}))
    assert subject_of("checkpoints/<int:pk>/", {"pk": one.pk}) == archived
    assert subject_of("operators/<int:pk>/", {"pk": operator.pk}) == archived
    assert isinstance(subject_of("checkpoints/<int:pk>/", {"pk": 2**40}), Absent)
    assert viewer.get(f"/checkpoints/{2**40}/").status_code == 404
    for file in archive.glob("operators/**/*.parquet"):
        file.unlink()
    compared = viewer.get(f"/jobs/{run.job_id}/compare/", {"a": "7", "b": "8"})
    assert (compared.status_code, "cannot be read from the archive" in compared.content.decode()) == (400, True)


@pytest.mark.nightly
def test_damaged_or_missing_file_is_named_and_other_rows_are_shown(
    api: Any, viewer: Client, operator: Client, run: Run, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Checkpoint.objects.get(run=run, checkpoint_id=7)
    monkeypatch.setattr(due, "ROWS_A_FILE", 40)
    advance()
    lost, kept = ArchivedFile.objects.filter(kind="checkpoints", runs__contains=[run.pk]).order_by("since")
    where = archive / lost.path
    whole = where.read_bytes()
    where.write_bytes(whole[:400] + bytes([whole[400] ^ 1]) + whole[401:])

    listing = f"/jobs/{run.job_id}/checkpoints"
    answer = api.get(listing, until=KEPT.isoformat(), limit=100).json()
    assert [item["id"] for item in answer["items"]] == list(range(kept.greatest_id, kept.least_id - 1, -1))
    assert f"Checkpoints of 2026-08 cannot be read from the archive: {lost.path}" in answer["unreadable"][0]
    page = viewer.get(f"/jobs/{run.job_id}/history/", {"before": f"{kept.since.isoformat()}_0"}).content.decode()
    assert "Checkpoints of 2026-08 cannot be read from the archive" in page
    assert operator.get(f"/checkpoints/{one.pk}/").status_code == 503
    part = operator.get(f"/checkpoints/{one.pk}/", headers={"HX-Request": "true"})
    assert (part.status_code, "cannot be read from the archive" in part.content.decode()) == (200, True)
    assert "<html" not in part.content.decode()
    with pytest.raises(ArchiveUnreadable, match="2026-08 cannot be read"):
        b"".join(viewer.get(f"/jobs/{run.job_id}/download/history.csv").streaming_content)

    where.unlink()
    download = viewer.get(f"/jobs/{run.job_id}/download/history.csv")
    assert (download.status_code, "it is missing" in download.content.decode()) == (503, True)
    assert (
        viewer.get(f"/jobs/{run.job_id}/download/history.csv", {"run": 1, "since": "2026-08-14T00:00"}).status_code
        == 200
    )
    refused = api.get(f"/checkpoints/{one.pk}")
    assert (refused.status_code, "it is missing" in refused.json()["error"]["message"]) == (503, True)
    lost.refresh_from_db()
    assert (lost.problem, lost.problem_value) == ("it is missing", ArchiveReason.MISSING())
    operator.cookies["django_language"] = "zh-hans"
    assert "文件不存在" in operator.get(f"/checkpoints/{one.pk}/").content.decode()

    where.write_bytes(whole)
    assert len(all_pages(api, run)) == 160
    assert not ArchivedFile.objects.exclude(problem="").exists()


@pytest.fixture
def mute(settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield an archive location on a server that accepts connections and never answers."""
    monkeypatch.setattr(reading, "WITHIN_S", 0.3)
    monkeypatch.setattr(reading, "HURRIED_S", 0.3)
    settings.VAR_DIR = tmp_path / "var"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = f"ftp://127.0.0.1:{listening.getsockname()[1]}/archive"
        yield place
    eventually("nothing hangs any more", lambda: not STORAGE_THREADS.hanging(f"archive {place}"), 60)


def test_unresponsive_storage_is_reported_and_postgresql_rows_are_shown(
    api: Any, viewer: Client, operator: Client, run: Run, settings, mute: str, mail_sink
) -> None:
    one = Checkpoint.objects.get(run=run, checkpoint_id=7)
    Channel.objects.create(name="ops", kind="mail", settings={"to": ["ops@example.org"]})
    evidence = {"count": 1, "last_row": one.pk}
    opening = Opening("failed_in_window", Severity.CRITICAL, "It fails.", evidence, job=run.job)
    (incident,) = open_incidents([opening], NOW)
    advance()
    settings.ARCHIVE = mute
    silence = "The storage of the archive did not answer within 0.3 s. Checkpoints of 2026-08 and other archived"
    before = f"{(NOW - timedelta(minutes=90)).isoformat()}_0"

    page = viewer.get(f"/jobs/{run.job_id}/history/", {"before": before})
    assert [row.checkpoint.checkpoint_id for row in page.context["page"].rows] == list(range(1010, 1000, -1))
    assert silence.replace("'", "&#x27;") in page.content.decode()
    responses = api.get(f"/jobs/{run.job_id}/checkpoints", limit=100, until=NOW.isoformat(), cursor=before).json()
    assert (len(responses["items"]), responses["next"], len(responses["unreadable"])) == (10, None, 1)
    assert responses["unreadable"][0].startswith(silence)
    shown = operator.get(f"/checkpoints/{one.pk}/")
    assert shown.status_code == 503
    assert "the storage of the archive did not answer within 0.3 s" in shown.content.decode()
    refused = api.get(f"/checkpoints/{one.pk}")
    assert (refused.status_code, "did not answer within 0.3 s" in refused.json()["error"]["message"]) == (503, True)
    for path in (f"/checkpoints/{one.pk}/diagnosis", f"/incidents/{incident.pk}/diagnosis"):
        refused = api.get(path)
        assert (refused.status_code, "did not answer within 0.3 s" in refused.json()["error"]["message"]) == (503, True)
    incident_page = viewer.get(f"/incidents/{incident.pk}/")
    note = f"<b>The probable cause is not known.</b> {silence}"
    assert (incident_page.status_code, note in incident_page.content.decode()) == (200, True)
    deliver_due(NOW + timedelta(seconds=30))
    assert len(mail_sink.mails) == 1
    compared = viewer.get(f"/jobs/{run.job_id}/compare/", {"a": "7", "b": "1001"})
    assert (compared.status_code, silence in compared.content.decode()) == (400, True)
    download = viewer.get(f"/jobs/{run.job_id}/download/history.csv")
    assert (download.status_code, silence in download.json()["errors"]["archive"][0]) == (503, True)
    with pytest.raises(NotRolledUp, match=r"did not answer within 0\.3 s"):
        quantiles(run.job, OLD + timedelta(minutes=30), OLD + timedelta(minutes=50))
    assert viewer.get(f"/jobs/{run.job_id}/history/").status_code == 200
    assert not ArchivedFile.objects.exclude(problem="").exists()
