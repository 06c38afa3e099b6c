from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dashboard.charts.durations import durations_figure
from dashboard.queries.series import (
    CELLS,
    POINTS,
    SHORTEST,
    Span,
    read_alignment,
    read_gaps,
    read_points,
    read_run_starts,
    span_of,
)
from monitoring.models import (
    Checkpoint,
    CheckpointGap,
    ConfigurationChange,
    Job,
    LaunchOrigin,
    LaunchVersion,
    OperatorCheckpoint,
    Run,
    RunStateChange,
)
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
CHARTS = ["durations", "sizes", "alignment", "alignments", "delays", "moved"]
FIGURES = [*CHARTS, "lanes"]  # with the figure that consists of several charts


@pytest.fixture
def run(now: datetime) -> Run:
    return make.make_run(make.make_job(make.make_cluster(now)), now, age=timedelta(days=2))


def test_thinning_keeps_the_slowest_checkpoint_of_each_bucket(run: Run, now: datetime) -> None:
    made = make.make_checkpoints(run, now, make.Shape(count=3000, every=timedelta(seconds=1), slow=frozenset({1500})))
    points = read_points(run.job, span_of(run.job, "1h", now))
    assert len(points) <= POINTS + 1
    assert max(p.duration or 0 for p in points) == max(c.end_to_end_duration or 0 for c in made)
    assert sum(p.stands_for for p in points) == 3000


def test_failed_checkpoints_are_never_thinned_away_by_completed_ones(run: Run, now: datetime) -> None:
    shape = make.Shape(count=2000, every=timedelta(seconds=1), failed=frozenset({3, 700, 1400}))
    make.make_checkpoints(run, now, shape)
    assert sum(p.failed for p in read_points(run.job, span_of(run.job, "1h", now))) == 3


@pytest.mark.parametrize(("chosen", "hours"), [("1h", 1), ("6h", 6), ("24h", 24), ("7d", 168), ("nonsense", 1)])
def test_a_preset_range_ends_now(run: Run, now: datetime, chosen: str, hours: int) -> None:
    make.make_checkpoints(run, now - timedelta(days=8), make.Shape(count=1))
    span = span_of(run.job, chosen, now)
    assert (span.end, span.end - span.start) == (now, timedelta(hours=hours))


def test_range_all_starts_at_the_first_checkpoint(run: Run, now: datetime) -> None:
    first = make.make_checkpoints(run, now, make.Shape(count=100))[0]
    assert span_of(run.job, "all", now).start == first.triggered_at


@pytest.mark.parametrize("chosen", ["1h", "7d"])
def test_a_range_longer_than_the_history_begins_with_it(run: Run, now: datetime, chosen: str) -> None:
    first = make.make_checkpoints(run, now, make.Shape(count=30))[0]
    assert span_of(run.job, chosen, now).start == first.triggered_at


def test_a_job_with_one_checkpoint_has_the_shortest_axis(run: Run, now: datetime) -> None:
    make.make_checkpoints(run, now, make.Shape(count=1))
    assert span_of(run.job, "1h", now).start == now - SHORTEST


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize(("chosen", "hours"), [("1h", 1), ("7d", 168)])
def test_the_axis_covers_the_requested_range(
    viewer: Client, run: Run, now: datetime, name: str, chosen: str, hours: int
) -> None:
    make.make_operators(make.make_checkpoints(run, now, make.Shape(count=30)))
    body = viewer.get(reverse("job-chart", args=[run.job_id, name]), {"range": chosen}).json()
    begin, end = map(datetime.fromisoformat, body["figure"]["layout"]["xaxis"]["range"])
    assert (end - begin) / timedelta(hours=hours) == pytest.approx(81 / 80)
    assert ("The history begins on" in body["note"]) == (name != "alignment")


def test_range_all_begins_with_the_history(viewer: Client, run: Run, now: datetime) -> None:
    make.make_checkpoints(run, now, make.Shape(count=30))
    body = viewer.get(reverse("job-chart", args=[run.job_id, "durations"]), {"range": "all"}).json()
    begin, end = map(datetime.fromisoformat, body["figure"]["layout"]["xaxis"]["range"])
    assert end - begin < timedelta(minutes=10)
    assert "The history begins" not in body["note"]


def test_phases_of_a_checkpoint_are_those_of_its_slowest_subtask(run: Run, now: datetime) -> None:
    made = make.make_checkpoints(run, now, make.Shape(count=3))
    make.make_operators(made)
    OperatorCheckpoint.objects.filter(checkpoint=made[0], position=1).update(
        subtask_end_to_end=[500, 9_999],
        subtask_start_delay=[400, 1],
        subtask_alignment=[50, 2],
        subtask_sync=[20, 3],
        subtask_async=[10, 9_000],
    )
    point = read_points(run.job, span_of(run.job, "1h", now))[0]
    assert (point.start_delay, point.alignment, point.sync, point.asynchronous) == (1, 2, 3, 9_000)


@pytest.mark.parametrize(
    ("sink_end", "sink_alignment", "alignment"),
    [
        (1_000, 0, 700),  # a tie
        (1_020, 0, 700),  # the sink acknowledged a few per cent later
        (1_020, None, 700),  # the alignment of the sink is unknown
        (1_100, 0, 0),  # the sink acknowledged clearly later
        (1_020, 720, 720),  # the sink acknowledged later and aligned longer
    ],
)
def test_among_equally_slow_subtasks_the_longest_alignment_gives_the_phases(
    run: Run, now: datetime, sink_end: int, sink_alignment: int | None, alignment: int
) -> None:
    (made,) = make.make_checkpoints(run, now, make.Shape(count=1))
    Checkpoint.objects.filter(pk=made.pk).update(end_to_end_duration=sink_end)
    make.make_operators([made])
    phases = {"subtask_sync": [10, 10], "subtask_async": [90, 90]}
    made.operators.exclude(position__in=(0, 1)).delete()
    made.operators.filter(position=0).update(
        subtask_end_to_end=[900, None], subtask_start_delay=[0, None], subtask_alignment=[800, None], **phases
    )
    made.operators.filter(position=1).update(
        subtask_end_to_end=[1_000, sink_end],
        subtask_start_delay=[200, 200],
        subtask_alignment=[700, sink_alignment],
        **phases,
    )
    (point,) = read_points(run.job, span_of(run.job, "1h", now))
    assert point.alignment == alignment
    figure = durations_figure([point], [], span_of(run.job, "1h", now))
    drawn = {trace["meta"]["role"]: sum(trace["y"]) for trace in figure["data"]}
    assert drawn.pop("hover") == sink_end
    assert (drawn["alignment"], sum(drawn.values())) == (alignment, sink_end)


def test_the_heat_map_stays_small_for_many_checkpoints(run: Run, now: datetime) -> None:
    made = make.make_checkpoints(run, now, make.Shape(count=300))
    make.make_operators(made)
    grid = read_alignment(run.job, span_of(run.job, "1h", now))
    assert len(grid.subtasks) == 6
    assert len(grid.columns) * len(grid.subtasks) <= CELLS
    assert sum(column.stands_for for column in grid.columns) == 300
    assert grid.columns == sorted(grid.columns, key=lambda column: column.triggered_at)


def test_the_heat_map_keeps_the_longest_alignment_of_each_interval(run: Run, now: datetime) -> None:
    made = make.make_checkpoints(run, now, make.Shape(count=250))
    worst = made[31]
    Checkpoint.objects.filter(pk=worst.pk).update(alignment_max=90_000)
    make.make_operators(made)
    span = span_of(run.job, "all", now)
    columns = {column.checkpoint_id: column for column in read_alignment(run.job, span).columns}
    assert worst.checkpoint_id in columns
    assert min(column.triggered_at for column in columns.values()) - span.start < (span.end - span.start) / 50
    zoomed = read_alignment(run.job, Span(made[100].triggered_at, made[120].triggered_at))
    assert [column.checkpoint_id for column in zoomed.columns] == list(range(101, 122))


def test_only_restarts_are_marked(run: Run, now: datetime) -> None:
    later = make.make_run(run.job, now, age=timedelta(minutes=5), restored_checkpoint_id=42, restored_is_savepoint=True)
    starts = read_run_starts(run.job, span_of(run.job, "7d", now))
    assert [(start.number, start.restored) for start in starts] == [(later.number, "savepoint 42")]


def test_marks_of_runs_say_what_changed(run: Run, now: datetime) -> None:
    job = run.job
    record: dict[str, Any] = {"spec": {"kind": "jar"}, "origin": LaunchOrigin.EDITED, "created_at": now}
    first, second = (LaunchVersion.objects.create(job=job, number=number, **record) for number in (1, 2))
    Run.objects.filter(pk=run.pk).update(launch_version=first)
    same = make.make_run(job, now, age=timedelta(minutes=20), launch_version=first)
    upgraded = make.make_run(job, now, age=timedelta(minutes=5), launch_version=second, restored_checkpoint_id=42)
    for run_of, keys in ((run, "ab"), (upgraded, "cd")):
        for key in keys:
            ConfigurationChange.objects.create(job=job, run=run_of, at=now, part="execution", key=key, kind="changed")
    starts = read_run_starts(job, span_of(job, "7d", now))
    assert [(start.number, start.version, start.settings) for start in starts] == [
        (same.number, None, 0),
        (upgraded.number, 2, 2),
    ]
    assert [start.label for start in starts] == [
        "run 2",
        "run 3 · version 2 · 2 settings changed · restored from checkpoint 42",
    ]


@pytest.mark.parametrize(
    ("minutes", "source", "is_restart"),
    [
        (20, "", False),  # the run was RUNNING before Waymark knew it
        (20, "CREATED", False),  # the run waited for slots before it was RUNNING for the first time
        (20, "RESTARTING", True),  # the run was RESTARTING when Waymark first saw it
    ],
)
def test_first_poll_of_a_running_run_is_not_a_restart(
    run: Run, now: datetime, minutes: int, source: str, is_restart: bool
) -> None:
    Run.objects.filter(pk=run.pk).update(started_at=now - timedelta(minutes=40))
    at = now - timedelta(minutes=minutes)
    if source:
        RunStateChange.objects.create(run=run, at=at - timedelta(minutes=1), target=source)
    RunStateChange.objects.create(run=run, at=at, source=source, target="RUNNING")
    marks = [start.at for start in read_run_starts(run.job, span_of(run.job, "1h", now))]
    assert marks == ([at] if is_restart else [])


def test_every_restart_by_the_engine_is_marked_not_only_the_last(run: Run, now: datetime) -> None:
    began = now - timedelta(minutes=40)
    last = {"restored_checkpoint_id": 106, "restored_is_savepoint": False, "restored_at": now - timedelta(minutes=5)}
    Run.objects.filter(pk=run.pk).update(started_at=began, **last)
    for minutes, source in (
        (40, ""),
        (39, "CREATED"),
        (20, "RUNNING"),
        (12, "RESTARTING"),
        (4.9, "RUNNING"),
        (2, "RUNNING"),
    ):
        at = now - timedelta(minutes=minutes)
        RunStateChange.objects.create(run=run, at=at, source=source, target="RUNNING")
    RunStateChange.objects.create(run=run, at=now - timedelta(minutes=13), source="RUNNING", target="RESTARTING")
    starts = read_run_starts(run.job, span_of(run.job, "1h", now))
    assert [((now - start.at) / timedelta(minutes=1), start.label) for start in starts] == [
        (20, "engine restart"),
        (12, "engine restart"),
        (5, "engine restart · restored from checkpoint 106"),
        (2, "engine restart"),
    ]
    within = Span(now - timedelta(minutes=15), now - timedelta(minutes=10))
    assert [start.at for start in read_run_starts(run.job, within)] == [now - timedelta(minutes=12)]


@pytest.mark.parametrize("name", FIGURES)
def test_every_chart_reports_that_a_job_has_no_checkpoint(viewer: Client, run: Run, name: str) -> None:
    body = viewer.get(reverse("job-chart", args=[run.job_id, name])).json()
    assert body["empty"]


@pytest.mark.parametrize("name", FIGURES)
def test_charts_of_failed_checkpoints_have_only_durations(viewer: Client, run: Run, now: datetime, name: str) -> None:
    make.make_checkpoints(run, now, make.Shape(count=3, failed=frozenset({0, 1, 2})))
    Checkpoint.objects.update(start_delay_max=None, alignment_max=None)
    body = viewer.get(reverse("job-chart", args=[run.job_id, name])).json()
    assert body["empty"] == (name not in ("durations", "lanes"))


@pytest.mark.parametrize("name", FIGURES)
def test_chart_texts_are_in_the_readers_language(viewer: Client, run: Run, now: datetime, name: str) -> None:
    make.make_operators(make.make_checkpoints(run, now, make.Shape(count=3)))
    Checkpoint.objects.update(processed_data=1000, persisted_data=10)
    make.make_run(run.job, now, age=timedelta(seconds=15), restored_checkpoint_id=42, restored_is_savepoint=True)
    viewer.cookies["django_language"] = "zh-hans"
    body = viewer.get(reverse("job-chart", args=[run.job_id, name])).json()
    figure = body["figure"]
    hovers = [trace.get("hovertext") or trace.get("text") or [] for trace in figure["data"]]
    output = [body["note"], *(label["text"] for label in figure["layout"].get("annotations", [])), *_texts(hovers)]
    assert any("检查点" in text or "子任务" in text for text in output)
    english = re.compile(r"\b(?!UTC\b|[KMG]B\b)[A-Za-z]{3,}\b")
    vertices = "|".join(f"{re.escape(name[:28])}[^<]*" for name, _ in make.VERTICES)
    assert [text for text in output if english.search(re.sub(f"{vertices}|<br>|{now:%b} ", "", text))] == []


def _texts(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, list):
        for each in found:
            yield from _texts(each)


def test_an_unknown_chart_is_not_found(viewer: Client, run: Run) -> None:
    assert viewer.get(reverse("job-chart", args=[run.job_id, "decoration"])).status_code == 404


def test_pages_of_a_job_that_never_ran_open(viewer: Client, now: datetime) -> None:
    job: Job = make.make_job(make.make_cluster(now))
    for name in ("job", "job-history", "job-summary", "job-configuration", "job-savepoints", "job-restart"):
        assert viewer.get(reverse(name, args=[job.pk])).status_code == 200


@pytest.mark.parametrize("count", [1, 10_000])
def test_every_chart_works_with_one_point_and_with_many(viewer: Client, run: Run, now: datetime, count: int) -> None:
    made = make.make_checkpoints(run, now, make.Shape(count=count))
    make.make_operators(made[-3:])
    Checkpoint.objects.update(processed_data=1000, persisted_data=10)
    for name in FIGURES:
        answer = viewer.get(reverse("job-chart", args=[run.job_id, name]), {"range": "all"})
        body = answer.json()
        assert not body["empty"], name
        assert max(len(trace["x"]) for trace in body["figure"]["data"]) <= POINTS + 1, name
        assert len(answer.content) < 400_000, name
        if name != "alignment":
            assert ("(10,000 total)" in body["note"]) == (count == 10_000), name


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_has_its_figures_as_a_table(viewer: Client, run: Run, now: datetime, name: str) -> None:
    empty = viewer.get(reverse("job-chart-table", args=[run.job_id, name])).content.decode()
    assert "in this time range" in empty
    made = make.make_checkpoints(run, now, make.Shape(count=7))
    make.make_operators(made)
    page = viewer.get(reverse("job-chart-table", args=[run.job_id, name])).content.decode()
    assert page.count('<th scope="row"') == (6 if name == "alignment" else 7)


@pytest.mark.parametrize("name", FIGURES)
def test_each_point_has_the_key_of_its_checkpoint(viewer: Client, run: Run, now: datetime, name: str) -> None:
    every = timedelta(minutes=1)
    shape = make.Shape(count=9, every=every, failed=frozenset({3}), savepoints=frozenset({5}))
    made = make.make_checkpoints(run, now, shape)
    make.make_operators(made)
    Checkpoint.objects.update(processed_data=1000, persisted_data=10)
    body = viewer.get(reverse("job-chart", args=[run.job_id, name])).json()
    keys = {key for trace in body["figure"]["data"] for key in _numbers(trace.get("customdata", []))}
    failed = {each.pk for each in made if each.status == "FAILED"}
    assert keys | failed == {each.pk for each in made}
    assert failed <= keys or name not in ("durations", "lanes")


def _numbers(found: Any) -> Iterator[int]:
    for each in found:
        if isinstance(each, list):
            yield from _numbers(each)
        elif each is not None:
            yield each


def test_gap_is_a_band_between_its_neighbouring_checkpoints(viewer: Client, run: Run, now: datetime) -> None:
    made = make.make_checkpoints(run, now, make.Shape(count=60))
    Checkpoint.objects.filter(checkpoint_id__range=(20, 29)).delete()
    CheckpointGap.objects.create(run=run, first_id=20, last_id=29, noticed_at=now)
    (gap,) = read_gaps(run.job, span_of(run.job, "1h", now))
    assert (gap.start, gap.end) == (made[18].triggered_at, made[29].triggered_at)
    for name in ("durations", "sizes", "alignments", "delays", "moved", "lanes"):
        body = viewer.get(reverse("job-chart", args=[run.job_id, name])).json()
        assert [shape["name"] for shape in body["figure"]["layout"]["shapes"]] == ["gap"]
        assert "the engine dropped" in body["note"]


def test_a_chart_has_every_checkpoint_of_the_requested_range(viewer: Client, run: Run, now: datetime) -> None:
    make.make_checkpoints(run, now, make.Shape(count=60))
    ends = {"since": (now - timedelta(seconds=305)).isoformat(), "until": (now - timedelta(seconds=95)).isoformat()}
    body = viewer.get(reverse("job-chart", args=[run.job_id, "delays"]), ends).json()
    assert len(body["figure"]["data"][0]["x"]) == 21


def test_charts_have_times_in_the_readers_zone(viewer: Client, run: Run, now: datetime) -> None:
    (made,) = make.make_checkpoints(run, now, make.Shape(count=1))
    with timezone.override("Asia/Shanghai"):
        figure = durations_figure(read_points(run.job, span_of(run.job, "1h", now)), [], span_of(run.job, "1h", now))
        local = timezone.localtime(made.triggered_at)
    assert figure["data"][0]["x"] == [local.replace(tzinfo=None).isoformat()]
    assert local.utcoffset() == timedelta(hours=8)
