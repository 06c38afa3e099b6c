"""Waymark's pages show every value of Flink's checkpoint pages. The poller reads recorded responses of Flink.

Each row of the lists has a field of Flink's pages, its place in the recorded response, and its format on a page. The
pages are History, its expanded row, a subtask, Summary, Overview and Configuration.
"""

from __future__ import annotations

import html
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dashboard.templatetags import figures
from monitoring.engine.client import FlinkClient
from monitoring.models import Checkpoint, Cluster, Run
from monitoring.polling.poller import Poller
from monitoring.units import bytes_text, duration_text
from tests.monitoring.engine.answering import answering_engine, answers_of, sample

pytestmark = pytest.mark.django_db
Text = Callable[[Any], str]


def clock(milliseconds: int) -> str:
    return str(figures.clock(datetime.fromtimestamp(milliseconds / 1000, UTC)))


def number(value: int) -> str:
    return f"{value:,}"


@pytest.fixture
def run() -> Iterator[Run]:
    """Return the run that the poller stores from the recorded responses."""
    job = uuid.uuid4().hex
    with answering_engine() as engine:
        engine.serve(answers_of([job]))
        Cluster.objects.create(name="recorded", rest_url=engine.url)
        for tick in range(3):
            at = timezone.now() + timedelta(minutes=5 * tick)
            with Poller(lambda at=at: at, FlinkClient) as poller:
                poller.start_due()
                while poller.in_flight:
                    poller.serve(30.0)
        yield Run.objects.get(engine_job_id=job)


@pytest.fixture
def seen(run: Run) -> Callable[..., str]:
    client = Client()
    client.force_login(User.objects.create_user("reader"))

    def read(name: str, pk: int, **asked: str) -> str:
        answer = client.get(reverse(name, args=[pk]), asked)
        assert answer.status_code == 200
        return re.sub(r"\s+", " ", answer.content.decode())

    return read


HISTORY: list[tuple[str, Text]] = [
    ("id", number),
    ("trigger_timestamp", clock),
    ("latest_ack_timestamp", clock),
    ("end_to_end_duration", duration_text),
    ("checkpointed_size", bytes_text),
    ("state_size", bytes_text),
    ("processed_data", bytes_text),
    ("persisted_data", bytes_text),
    ("num_subtasks", str),
    ("num_acknowledged_subtasks", str),
]


def test_the_history_has_every_column_of_flinks_history(run: Run, seen: Callable[..., str]) -> None:
    page = seen("job-history", run.job_id)
    for entry in sample("checkpoints")["history"]:
        row = _row(page, f"checkpoint-{Checkpoint.objects.get(run=run, checkpoint_id=entry['id']).pk}")
        assert entry["status"].capitalize() in row
        for name, text in HISTORY:
            assert text(entry[name]) in row, (name, entry[name])


def test_the_expanded_row_has_operators_path_type_and_whether_it_was_discarded(
    run: Run, seen: Callable[..., str]
) -> None:
    for entry in sample("checkpoints")["history"]:
        page = seen("checkpoint", Checkpoint.objects.get(run=run, checkpoint_id=entry["id"]).pk)
        assert entry["external_path"] in page
        assert "<dt>Type</dt><dd>checkpoint" in page
        assert ("discarded" in page) == entry["discarded"]
        names = {node["id"]: node["name"] for node in sample("job")["vertices"]}
        task = sample("checkpoint_subtasks")  # the fake engine has this response for every vertex
        for vertex in sample("checkpoint_details")["tasks"]:
            assert html.escape(names[vertex]) in page
            assert f"{task['num_acknowledged_subtasks']}/{task['num_subtasks']}" in page
            for name, text in (
                ("latest_ack_timestamp", clock),
                ("end_to_end_duration", duration_text),
                ("checkpointed_size", bytes_text),
                ("state_size", bytes_text),
                ("processed_data", bytes_text),
                ("persisted_data", bytes_text),
            ):
                assert text(task[name]) in page, name


def test_every_subtask_has_every_figure_with_minimum_average_and_maximum(run: Run, seen: Callable[..., str]) -> None:
    result = sample("checkpoint_subtasks")
    checkpoint = Checkpoint.objects.filter(run=run).earliest("checkpoint_id")
    page = seen("operator", checkpoint.operators.order_by("position")[0].pk)
    for subtask in result["subtasks"]:
        row = re.search(rf'<th scope="row">{subtask["index"]}</th>.*?</tr>', page)
        assert row is not None
        for value, text in (
            (subtask["ack_timestamp"], clock),
            (subtask["end_to_end_duration"], duration_text),
            (subtask["checkpointed_size"], bytes_text),
            (subtask["state_size"], bytes_text),
            (subtask["checkpoint"]["sync"], duration_text),
            (subtask["checkpoint"]["async"], duration_text),
            (subtask["alignment"]["processed"], bytes_text),
            (subtask["alignment"]["persisted"], bytes_text),
            (subtask["alignment"]["duration"], duration_text),
            (subtask["start_delay"], duration_text),
        ):
            assert text(value) in row[0], value
        assert "<td>no</td>" in row[0]  # unaligned
    summary = result["summary"]
    for name, text in (
        ("end_to_end_duration", duration_text),
        ("checkpointed_size", bytes_text),
        ("state_size", bytes_text),
        ("start_delay", duration_text),
    ):
        for measure, heading in (("min", "Minimum"), ("avg", "Average"), ("max", "Maximum")):
            row = re.search(rf"<th scope=\"row\" colspan=\"2\">{heading}</th>.*?</tr>", page)
            assert row is not None
            assert text(summary[name][measure]) in row[0], (name, measure)


def test_the_overview_has_the_counts_and_the_newest_of_each_kind(run: Run, seen: Callable[..., str]) -> None:
    page = seen("job", run.job_id, range="all")
    counts = sample("checkpoints")["counts"]
    for name, word in (
        ("total", "triggered"),
        ("in_progress", "in progress"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("restored", "restored"),
    ):
        assert f"{counts[name]} {word}" in page
    newest = sample("checkpoints")["latest"]["completed"]
    row = page[page.index("Latest by type") :]
    for value in (
        number(newest["id"]),
        duration_text(newest["end_to_end_duration"]),
        bytes_text(newest["checkpointed_size"]),
        bytes_text(newest["state_size"]),
        newest["external_path"],
    ):
        assert value in row


def test_counted_failures_without_an_entry_are_explained(run: Run, seen: Callable[..., str], now: datetime) -> None:
    text = "2 checkpoints failed before they were triggered"
    Run.objects.filter(pk=run.pk).update(counts={**run.counts, "failed": 2})
    run.checkpoints.filter(status="FAILED").delete()
    assert text in seen("job", run.job_id, range="all")
    run.checkpoints.update(status="FAILED", failed_at=now)
    assert text not in seen("job", run.job_id, range="all")


def test_restored_snapshot_is_shown_with_its_path(run: Run, seen: Callable[..., str]) -> None:
    restored = sample("checkpoints_restored_from_savepoint")["latest"]["restored"]
    Run.objects.filter(pk=run.pk).update(
        restored_checkpoint_id=restored["id"],
        restored_path=restored["external_path"],
        restored_is_savepoint=restored["is_savepoint"],
        restored_at=datetime.fromtimestamp(restored["restore_timestamp"] / 1000, UTC),
    )
    row = seen("job", run.job_id, range="all").partition("Latest by type")[2]
    assert number(restored["id"]) in row
    assert restored["external_path"] in row
    assert "from a savepoint" in row


def test_the_summary_has_every_row_and_column_of_flinks(run: Run, seen: Callable[..., str]) -> None:
    page = seen("job-summary", run.job_id, range="all")
    for column in (
        "End to end duration",
        "Checkpointed size",
        "Full size",
        "Processed in flight",
        "Persisted in flight",
    ):
        assert f">{column}</th>" in page
    for row in ("Minimum", "Average", "Maximum", "p50", "p90", "p95", "p99", "p99.9"):
        assert f'<th scope="row">{row}</th>' in page


CONFIGURATION: list[tuple[str, str]] = [
    ("mode", "Checkpointing mode"),
    ("checkpoint_storage", "Checkpoint storage"),
    ("state_backend", "State backend"),
    ("interval", "Interval"),
    ("timeout", "Timeout"),
    ("min_pause", "Minimum pause between checkpoints"),
    ("max_concurrent", "Maximum concurrent checkpoints"),
    ("unaligned_checkpoints", "Unaligned checkpoints"),
    ("externalization", "Retained after the job ends"),
    ("tolerable_failed_checkpoints", "Tolerable failed checkpoints"),
    ("checkpoints_after_tasks_finish", "Checkpoints after tasks finish"),
    ("state_changelog_enabled", "State changelog"),
]


def test_the_configuration_has_every_row_of_flinks(run: Run, seen: Callable[..., str]) -> None:
    page = seen("job-configuration", run.job_id)
    config = sample("checkpoints_config")
    shown_with_another = {
        "aligned_checkpoint_timeout",
        "changelog_storage",
        "changelog_periodic_materialization_interval",
    }
    assert set(config) - shown_with_another == {name for name, _ in CONFIGURATION}
    for name, label in CONFIGURATION:
        value = re.search(rf"<dt>{label}</dt><dd>(.*?)</dd>", page)
        assert value is not None, label
        assert value[1].strip() not in ("", "–"), name
    assert config["checkpoint_storage"] in page
    assert config["state_backend"] in page


def _row(page: str, row_id: str) -> str:
    found = re.search(rf'<tr class="link" id="{row_id}">.*?</tr>', page)
    assert found is not None
    return found[0]
