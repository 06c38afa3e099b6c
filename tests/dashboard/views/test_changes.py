"""What changed for a job in a time range: as a list, and as flags of charts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.urls import reverse
from django.utils.translation import override

from dashboard.queries.changes import Changed, before_and_after, read_changes
from dashboard.queries.series import Span
from monitoring import audit
from monitoring.models import (
    AttemptState,
    AuditEntry,
    ConfigurationChange,
    Job,
    LaunchVersion,
    MaintenanceWindow,
    RestartTrigger,
    SavepointOrigin,
)
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


@pytest.fixture
def job(now: datetime) -> Job:
    """Return a job with one run, which began two hours ago."""
    job = make.make_job(make.make_cluster(now), labels={"team": "payments"})
    make.make_run(job, now, age=timedelta(hours=2))
    return job


def changes(job: Job, now: datetime) -> list[tuple[Changed, str]]:
    return [(change.kind, change.sentence) for change in read_changes(job, Span(now - timedelta(hours=1), now))]


def test_a_quiet_job_has_no_changes(job: Job, now: datetime) -> None:
    assert changes(job, now) == []


def test_a_restart_by_a_person_with_another_program(job: Job, now: datetime) -> None:
    old, spec = job.current_run, dict(make.LAUNCH)
    assert old is not None
    old.launch_version = _version(job, 1, spec, now)
    old.save()
    run = make.make_run(job, now, age=5 * MINUTE)
    run.launch_version = _version(job, 2, spec | {"jar_id": "new.py", "parallelism": 8}, now)
    run.save()
    attempt = make.make_attempt(job, now - 6 * MINUTE, trigger=RestartTrigger.MANUAL, requested_by="olga", new_run=run)
    found = {change.kind: change for change in read_changes(job, Span(now - 60 * MINUTE, now))}
    assert found.keys() == {Changed.RESTART, Changed.PROGRAM}
    restart, program = found[Changed.RESTART], found[Changed.PROGRAM]
    assert restart.sentence == "Run 2 started · restart 1 (manual), requested by olga"
    assert (restart.at, restart.url) == (run.started_at, reverse("restart-progress", args=[attempt.pk]))
    assert program.sentence == "Run 2 uses version 2 of the launch settings. Changed: program, parallelism"


def _version(job: Job, number: int, spec: dict[str, Any], now: datetime) -> LaunchVersion:
    return LaunchVersion.objects.create(job=job, number=number, spec=spec, origin="found", created_at=now)


def test_a_restart_that_started_no_run(job: Job, now: datetime) -> None:
    make.make_attempt(job, now - 6 * MINUTE, AttemptState.FAILED)
    assert changes(job, now) == [(Changed.RESTART, "restart 1 (automatic): Failed")]


def test_keys_of_the_configuration_that_changed_together_are_one_change(job: Job, now: datetime) -> None:
    at = now - 10 * MINUTE
    for key, before, after in (("interval", 10_000, 30_000), ("mode", "exactly_once", "at_least_once"), ("x", 1, 2)):
        _changed(job, at, "checkpointing", key, before, after)
    _changed(job, at, "operators", "Sink", 2, 4)
    _changed(job, now - timedelta(hours=2), "execution", "old", 1, 2)
    assert set(changes(job, now)) == {
        (Changed.CONFIGURATION, "interval: 10 s → 30 s, mode: exactly_once → at_least_once and 1 more"),
        (Changed.PARALLELISM, "Sink: 2 → 4"),
    }


def _changed(job: Job, at: datetime, part: str, key: str, before: Any, after: Any) -> None:
    values = {"part": part, "key": key, "kind": "changed", "before": before, "after": after}
    ConfigurationChange.objects.create(job=job, at=at, **values)


def test_stops_that_were_requested(job: Job, now: datetime) -> None:
    run = job.current_run
    assert run is not None
    made = {"stops_job": True, "requested_by": "olga"}
    make.make_savepoint(run, now - 5 * MINUTE, origin=SavepointOrigin.MANUAL, **made)
    # this stop is a part of a restart
    make.make_savepoint(run, now - 6 * MINUTE, origin=SavepointOrigin.RESTART, **made)
    make.make_savepoint(run, now - 7 * MINUTE)
    for engine_job_id in (run.engine_job_id, "f" * 32):  # the second is of a job with this name on another cluster
        audit.record("ada", "job.cancel", f"job {job.name}", engine_job_id=engine_job_id)
    AuditEntry.objects.update(at=now - MINUTE)
    assert changes(job, now) == [
        (Changed.STOP, "Cancellation, requested by ada"),
        (Changed.STOP, "Stop with a savepoint, requested by olga"),
    ]


def test_maintenance_of_the_job_its_cluster_or_its_labels(job: Job, now: datetime) -> None:
    def window(reason: str, start: int, end: int, **scope: Any) -> None:
        times = {"starts_at": now + start * MINUTE, "ends_at": now + end * MINUTE}
        MaintenanceWindow.objects.create(reason=reason, created_by="olga", **times, **scope)

    window("disks", -30, 30, cluster=job.cluster)
    window("broker", -90, -20, selector="team=payments")
    window("other", -30, 30, selector="team=orders")
    window("later", 5, 30, job=job)
    assert changes(job, now) == [
        (Changed.MAINTENANCE, "Maintenance ended: broker"),
        (Changed.MAINTENANCE, "Maintenance began: disks"),
    ]


def test_a_comparison_has_the_same_length_on_both_sides(now: datetime) -> None:
    def sides(at: datetime, length: timedelta) -> list[timedelta]:
        query = parse_qs(urlsplit(before_and_after(7, at, length, now)).query)
        ends = [[datetime.fromisoformat(end) for end in query[side][0].split("/")] for side in "ab"]
        assert ends[0][1] == ends[1][0]
        return [end - start for start, end in ends]

    assert sides(now - 60 * MINUTE, 15 * MINUTE) == [15 * MINUTE] * 2
    assert sides(now - 10 * MINUTE, 15 * MINUTE) == [10 * MINUTE] * 2  # not longer than the time since the change
    assert sides(now, 15 * MINUTE) == [2 * MINUTE] * 2


def test_charts_have_a_flag_for_each_change_and_the_page_lists_them(viewer: Client, job: Job, now: datetime) -> None:
    run = job.current_run
    assert run is not None
    make.make_operators(make.make_checkpoints(run, now, make.Shape(count=9, every=MINUTE)))
    _changed(job, now - 40 * MINUTE, "checkpointing", "mode", "a", "<b>")
    _changed(job, now - 40 * MINUTE + timedelta(seconds=5), "operators", "Sink", 2, 4)
    _changed(job, now - 20 * MINUTE, "checkpointing", "mode", "<b>", "a")
    for name in ("lanes", "durations", "sizes", "alignment", "alignments", "delays"):
        body = viewer.get(reverse("job-chart", args=[job.pk, name])).json()
        shape = body["figure"]["layout"]
        flags = [label for label in shape["annotations"] if label.get("name") == "change"]
        assert len(flags) == 2, name
        assert "mode: a → &lt;b&gt;" in flags[0]["hovertext"]
        assert "Sink: 2 → 4" in flags[0]["hovertext"]
        comparisons = shape["meta"]["comparisons"]
        assert comparisons.keys() == {flag["x"] for flag in flags}
        assert comparisons[flags[0]["x"]].startswith(reverse("job-compare", args=[job.pk]))
        assert viewer.get(comparisons[flags[0]["x"]]).status_code == 200
        assert "Flags: changes." in body["note"]
    page = viewer.get(reverse("job-changes", args=[job.pk])).content.decode()
    assert "mode: a → &lt;b&gt;" in page
    assert page.count("Before and after") == 3
    quiet = viewer.get(reverse("job-changes", args=[job.pk]), {"since": "2020-01-01", "until": "2020-01-02"})
    assert "Waymark knows of no change in this time range." in quiet.content.decode()


def test_changes_are_in_the_language_of_the_page(job: Job, now: datetime) -> None:
    make.make_run(job, now, age=5 * MINUTE)
    make.make_attempt(job, now - 6 * MINUTE, AttemptState.FAILED)
    with override("zh-hans"):
        assert set(changes(job, now)) == {(Changed.RUN, "运行 2 已启动"), (Changed.RESTART, "重启 1（自动）：失败")}
