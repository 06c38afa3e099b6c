from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse

from dashboard.downloads import Column, download, file_name
from monitoring.models import Checkpoint, Job, OperatorCheckpoint, RunException
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now), 'a "quoted"/name\n')
    first = make.make_run(job, now, age=timedelta(hours=2), state="FAILED", ended_at=now - timedelta(hours=1))
    make.make_checkpoints(first, now - timedelta(hours=1), make.Shape(count=30, failed=frozenset({0, 3})))
    second = make.make_run(job, now)
    make.make_operators(make.make_checkpoints(second, now, make.Shape(count=5, first_id=31)))
    return job


def text(client: Client, job: Job, what: str, form: str, **asked: str) -> str:
    answer = client.get(reverse("job-download", args=[job.pk, what, form]), asked)
    assert answer.status_code == 200
    assert "attachment" in answer.headers["Content-Disposition"]
    return b"".join(answer.streaming_content).decode()


def rows(client: Client, job: Job, what: str, **asked: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text(client, job, what, "csv", **asked))))


def test_the_history_download_uses_the_filters_of_the_page(viewer: Client, job: Job) -> None:
    assert [row["checkpoint_id"] for row in rows(viewer, job, "history")] == [str(n) for n in range(35, 0, -1)]
    failed = rows(viewer, job, "history", status="FAILED", run="1")
    assert [row["checkpoint_id"] for row in failed] == ["30", "27"]
    assert failed[0]["failure_message"] == make.EXPIRED
    assert {"end_to_end_duration_ms", "state_size_bytes", "processed_data_bytes"} <= failed[0].keys()


def test_json_holds_the_same_rows(viewer: Client, job: Job) -> None:
    found = json.loads(text(viewer, job, "history", "json", run="2"))
    assert [row["checkpoint_id"] for row in found] == [35, 34, 33, 32, 31]
    assert isinstance(found[0]["state_size_bytes"], int)
    assert json.loads(text(viewer, job, "history", "json", run="7")) == []


@pytest.mark.parametrize("what", ["summary", "runs", "chart", "exceptions"])
def test_every_table_can_be_downloaded(viewer: Client, job: Job, what: str) -> None:
    RunException.objects.create(run=job.current_run, at=job.created_at, name="E", digest="e" * 32)
    assert rows(viewer, job, what, range="all")
    assert json.loads(text(viewer, job, what, "json", range="all"))


def test_comparisons_and_subtasks_can_be_downloaded(viewer: Client, job: Job) -> None:
    assert {row["operator"] for row in rows(viewer, job, "compare", a="31", b="32")} == {
        "",
        *(name for name, _ in make.VERTICES),
    }
    checkpoint = Checkpoint.objects.get(run__job=job, checkpoint_id=33)
    answer = viewer.get(reverse("checkpoint-download", args=[checkpoint.pk, "json"]))
    found = json.loads(b"".join(answer.streaming_content))
    assert [(row["operator"], row["subtask"]) for row in found] == [
        (name, subtask) for name, parallelism in make.VERTICES for subtask in range(parallelism)
    ]
    assert found[3]["async_ms"] == checkpoint.async_max


@pytest.mark.parametrize("nasty", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1+1"])
def test_no_text_becomes_a_formula_in_a_spreadsheet(viewer: Client, job: Job, nasty: str) -> None:
    Checkpoint.objects.filter(run__job=job, status="FAILED").update(failure_message=f'{nasty}, "x"\nnext')
    OperatorCheckpoint.objects.update(name=nasty)
    (row, *_) = rows(viewer, job, "history", status="FAILED")
    assert row["failure_message"] == f'\'{nasty}, "x"\nnext'.replace("\r", "\r")
    stored = json.loads(text(viewer, job, "history", "json", status="FAILED"))
    assert stored[0]["failure_message"].startswith(nasty)


def test_a_negative_number_stays_a_number(viewer: Client, job: Job) -> None:
    found = rows(viewer, job, "compare", a="32", b="31")
    assert any(row["change"].startswith("-") for row in found)


def test_an_invalid_filter_is_reported_at_its_field(viewer: Client, job: Job) -> None:
    answer = viewer.get(reverse("job-download", args=[job.pk, "history", "csv"]), {"took": "soon"})
    assert answer.status_code == 400
    assert "Enter a number and a unit" in answer.json()["errors"]["took"][0]


@pytest.mark.parametrize(("what", "form"), [("history", "xlsx"), ("secrets", "csv")])
def test_unknown_downloads_return_404(viewer: Client, job: Job, what: str, form: str) -> None:
    assert viewer.get(reverse("job-download", args=[job.pk, what, form])).status_code == 404


def test_the_file_name_has_no_special_characters(viewer: Client, job: Job) -> None:
    answer = viewer.get(reverse("job-download", args=[job.pk, "runs", "csv"]))
    assert answer.headers["Content-Disposition"] == 'attachment; filename="a--quoted--name--runs.csv"'
    assert file_name("../作业") == "rows"


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_row_is_read_only_when_the_rows_before_it_are_sent(form: str) -> None:
    read = sent = 0

    def rows_of_a_table() -> Iterator[int]:
        nonlocal read
        for number in range(10_000):
            read += 1
            yield number

    columns = [Column("number", lambda row: row), Column("text", lambda row: "x" * 100)]
    for chunk in download(form, "many", columns, rows_of_a_table()):
        lines = chunk.count(b"\n")
        assert lines <= 201
        sent += lines
        assert read <= sent
    assert read == 10_000
