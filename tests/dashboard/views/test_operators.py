"""The table that shows how the state of each operator of a job developed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from django.test import Client
from django.urls import reverse

from dashboard.queries import operators as read
from monitoring.history.catalogue import floor
from monitoring.history.pipeline.columns import COUNTS, SKETCHES, VERSION
from monitoring.history.sketches import encode
from monitoring.models import Checkpoint, Job, OperatorCheckpoint, OperatorRollup, Rollup, RollupProgress
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
MB = 1024 * 1024
SOURCE, WINDOW = f"{0:032x}", f"{1:032x}"


@pytest.fixture
def job(now: datetime) -> Job:
    """Return a job whose newest ten checkpoints, a minute apart, have two operators. The state of one grows."""
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now, age=timedelta(hours=2), vertices=list(vertices(window="Window(5 min)")))
    for number in range(1, 11):
        checkpoint = Checkpoint.objects.create(
            run=run, checkpoint_id=number, triggered_at=now - timedelta(minutes=10 - number, seconds=1),
            status="COMPLETED", state_size=number * MB,
        )  # fmt: skip
        for vertex, state_size, duration in ((SOURCE, 0, 5), (WINDOW, number * MB, number * 1000)):
            OperatorCheckpoint.objects.create(
                checkpoint=checkpoint, vertex_id=vertex, name="Window(5 min)" if vertex == WINDOW else "Source",
                num_subtasks=1, num_acknowledged_subtasks=1, state_size=state_size, checkpointed_size=MB,
                end_to_end_duration=duration,
            )  # fmt: skip
    return job


def vertices(window: str) -> Iterator[dict[str, object]]:
    yield {"id": SOURCE, "name": "Source", "parallelism": 1}
    yield {"id": WINDOW, "name": window, "parallelism": 1}


def roll_up(
    job: Job, seconds: int, start: datetime, state_size: int, operator: str = WINDOW, durations: Sequence[int] = (700,)
) -> None:
    totals = {
        f"{figure}_{what}": state_size for figure in ("state_size", "checkpointed_size") for what in ("sum", "max")
    }
    figures = {"duration_sum": sum(durations), "duration_min": min(durations), "duration_max": max(durations)}
    OperatorRollup.objects.create(
        job=job, seconds=seconds, start=start, operator=operator, version=VERSION, completed=60,
        duration_sketch=encode(np.array(durations)), **totals, **figures,
    )  # fmt: skip


def rows(viewer: Client, job: Job, **query: object) -> list[list[str]]:
    answer = viewer.get(reverse("job-operators", args=[job.pk]), query)
    assert answer.status_code == 200
    body = answer.content.decode().partition("<tbody>")[2].partition("</tbody>")[0]
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in body.split("</tr>")[:-1]]
    return [[" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in row] for row in cells]


def test_operators_are_listed_with_the_growth_of_their_state(viewer: Client, job: Job) -> None:
    assert rows(viewer, job) == [
        ["Window(5 min)", "10.0 MB", "+9.00 MB", "", "10.0 MB", "10 s", "10 s"],
        ["Source", "0 B", "0 B", "", "10.0 MB", "5 ms", "5 ms"],
    ]


def test_only_checkpoints_of_the_time_range_count(viewer: Client, job: Job, now: datetime) -> None:
    since = now - timedelta(minutes=3, seconds=30)
    window, _source = rows(viewer, job, since=since.isoformat(), until=now.isoformat())
    assert window[1:3] == ["10.0 MB", "+3.00 MB"]


def test_only_checkpoints_of_the_run_count(viewer: Client, job: Job, now: datetime) -> None:
    make.make_run(job, now)
    assert len(rows(viewer, job, run=1)) == 2
    assert rows(viewer, job, run=2) == []


def test_state_that_shrinks_has_a_minus(viewer: Client, job: Job) -> None:
    OperatorCheckpoint.objects.filter(vertex_id=WINDOW, checkpoint__checkpoint_id=10).update(state_size=512 * 1024)
    assert rows(viewer, job)[0][1:3] == ["512 KB", "−512 KB"]


def test_a_failed_checkpoint_does_not_count(viewer: Client, job: Job) -> None:
    Checkpoint.objects.filter(checkpoint_id=10).update(status="FAILED")
    assert rows(viewer, job)[0][1:3] == ["9.00 MB", "+8.00 MB"]


def test_a_job_without_figures_of_operators_says_so(viewer: Client, job: Job) -> None:
    OperatorCheckpoint.objects.all().delete()
    assert "has figures of operators" in viewer.get(reverse("job-operators", args=[job.pk])).content.decode()


def test_many_checkpoints_are_read_from_roll_ups(
    viewer: Client, job: Job, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "EXACT", 5)
    answer = viewer.get(reverse("job-operators", args=[job.pk])).content.decode()
    assert "no roll-ups by operator" in answer
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    Checkpoint.objects.filter(checkpoint_id=1).update(triggered_at=now - timedelta(days=3))
    for back, state_size in ((2, 4 * MB), (1, 6 * MB)):
        roll_up(job, 3600, hour - timedelta(hours=back), state_size)
    roll_up(job, 3600, hour - timedelta(hours=1), MB, operator="f" * 32)
    found = rows(viewer, job, range="24h")
    assert found[0] == ["Window(5 min)", "6.00 MB", "+2.00 MB", "", "10.0 MB", "700 ms", "700 ms"]
    assert found[1][0] == "f" * 32, "the name of an operator that no newer run has is not known"
    assert "from roll-ups" in viewer.get(reverse("job-operators", args=[job.pk]), {"range": "24h"}).content.decode()


def test_p95_is_merged_from_the_sketches_of_roll_ups(
    viewer: Client, job: Job, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "EXACT", 5)
    Checkpoint.objects.filter(checkpoint_id=1).update(triggered_at=now - timedelta(days=3))
    hour = floor(now, 3600)
    for back, durations in ((3, range(1, 51)), (2, range(51, 101))):
        roll_up(job, 3600, hour - timedelta(hours=back), MB, durations=[100 * each for each in durations])
    assert rows(viewer, job, range="24h")[0][-2:] == ["9.5 s", "10 s"]
    OperatorRollup.objects.filter(duration_min=100).update(version=0, duration_sketch=b"")
    assert rows(viewer, job, range="24h")[0][-2:] == ["–", "10 s"], "an older program made a roll-up without a sketch"


def test_roll_ups_of_minutes_are_read_while_they_are_kept(
    viewer: Client, job: Job, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "EXACT", 5)
    Checkpoint.objects.filter(checkpoint_id=1).update(triggered_at=now - timedelta(days=3))
    for back, state_size in ((30, 2 * MB), (20, 8 * MB), (10, 7 * MB)):
        roll_up(job, 60, floor(now, 60) - timedelta(minutes=back), state_size)
    roll_up(job, 3600, floor(now, 3600), 9 * MB)
    roll_up(job, 3600, floor(now, 3600) - timedelta(hours=1), 9 * MB)
    recent = {"since": (now - timedelta(hours=2)).isoformat(), "until": now.isoformat()}
    assert rows(viewer, job, **recent)[0][1:3] == ["7.00 MB", "+5.00 MB"]
    assert (
        "the last minute, from roll-ups" in viewer.get(reverse("job-operators", args=[job.pk]), recent).content.decode()
    )
    assert rows(viewer, job, range="24h")[0][1:3] == ["9.00 MB", "0 B"]
    OperatorRollup.objects.filter(seconds=60).delete()
    assert rows(viewer, job, **recent)[0][1] == "9.00 MB", "the hours are read"


def test_archived_checkpoints_without_roll_ups_by_operator_are_not_left_out_silently(
    viewer: Client, job: Job, now: datetime
) -> None:
    """The roll-ups of the job count more checkpoints than PostgreSQL has."""
    numbers = dict.fromkeys(COUNTS, 0) | {"completed": 11} | dict.fromkeys(SKETCHES, b"")
    Rollup.objects.create(
        job=job, seconds=3600, start=floor(now, 3600) - timedelta(hours=5), version=VERSION, **numbers
    )
    answer = viewer.get(reverse("job-operators", args=[job.pk]), {"range": "24h"}).content.decode()
    assert "the checkpoints are archived or too many to read" in answer
    assert "<table>" not in answer
    assert len(rows(viewer, job, range="1h")) == 2


def test_a_range_whose_hours_are_deleted_is_read_from_days(
    viewer: Client, job: Job, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "EXACT", 5)
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    RollupProgress.objects.create(id=1, done=1, at=now, hours_from=midnight - timedelta(days=45))
    for back, state_size in ((60, MB), (50, 5 * MB), (1, 3 * MB)):
        roll_up(job, 86_400, midnight - timedelta(days=back), state_size)
    since, until = midnight - timedelta(days=70), now
    assert rows(viewer, job, since=since.isoformat(), until=until.isoformat())[0][1:3] == ["3.00 MB", "+2.00 MB"]
