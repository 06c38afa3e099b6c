from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import Checkpoint, Cluster, Run, RunState
from tests.dashboard import builders as make
from tests.dashboard import sample_fleet

pytestmark = pytest.mark.django_db
Queries = Callable[[int], Any]
LIVE = {"HX-Request": "true", "HX-Target": "fleet-live"}


def test_empty_fleet_page_names_the_next_step(operator: Client) -> None:
    assert "manage.py up --demo" in operator.get(reverse("fleet")).content.decode()


def test_without_jobs_the_page_names_the_submit_command(operator: Client, now: datetime) -> None:
    make.make_cluster(now)
    assert "manage.py submit" in operator.get(reverse("fleet")).content.decode()


def test_the_most_urgent_job_comes_first_and_all_are_counted(operator: Client, now: datetime) -> None:
    sample_fleet.make_troubled_fleet(now)
    response = operator.get(reverse("fleet"))
    rows = response.context["fleet"].shown.rows
    assert rows[0].facts.job.name == "orders-enrich"
    counts = {level.word: count for level, count in response.context["levels"]}
    assert counts == {"failing": 1, "overdue": 1, "degraded": 1, "unknown": 3, "healthy": 18, "ended": 0}


def test_a_running_job_with_a_problem_has_the_colour_and_the_word_of_its_level(operator: Client, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now)
    make.make_checkpoints(run, now - timedelta(minutes=9), make.Shape(count=3))
    page = operator.get(reverse("fleet")).content.decode()
    assert '<span class="badge badge-bad">RUNNING</span> <b class="level level-overdue">overdue</b>' in page
    assert '<rect class="bar-overdue"' in page


def test_the_strip_has_the_levels_of_the_rows(operator: Client, now: datetime) -> None:
    sample_fleet.make_troubled_fleet(now)
    response = operator.get(reverse("fleet"))
    page = response.content.decode()
    for level, count in response.context["levels"]:
        assert page.count(f'class="cell cell-{level.word}"') == count
    assert page.count('class="level level-overdue"') == 1
    assert "Boxes:" not in page


def test_a_large_fleet_has_boxes_for_its_most_urgent_jobs_only(
    operator: Client, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.queries.fleet.STRIP_JOBS", 9)
    sample_fleet.make_troubled_fleet(now)
    response = operator.get(reverse("fleet"))
    boxes = re.findall(r'class="cell cell-(\w+)"', response.content.decode())
    counts = {level.word: count for level, count in response.context["levels"] if count}
    assert {level: boxes.count(level) for level in boxes} == counts | {"healthy": 3}
    assert counts["healthy"] == 18
    assert "Boxes: the 9 most urgent jobs" in response.content.decode()


def test_an_unreachable_cluster_is_shown_with_its_last_response(operator: Client, now: datetime) -> None:
    sample_fleet.make_troubled_fleet(now)
    page = operator.get(reverse("fleet")).content.decode()
    assert "apac has not answered" in page
    assert "last seen RUNNING" in page


def test_job_missing_after_a_cluster_rebuild_is_reported(operator: Client, now: datetime) -> None:
    """The job is not shown as RUNNING or slow, because its status is unknown."""
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now, missing_since=now - timedelta(seconds=80))
    make.make_checkpoints(run, now - timedelta(minutes=5), make.Shape(count=8))
    text = "The engine has not reported this job for"
    (row,) = operator.get(reverse("fleet")).context["fleet"].shown.rows
    assert (row.health.state_word, row.health.sentence.startswith(text)) == ("unknown", True)
    page = operator.get(reverse("job", args=[job.pk])).content.decode()
    assert text in page
    assert "last seen RUNNING" in page
    assert "No checkpoint is triggered" not in page
    assert "The cluster does not answer" not in page


@pytest.mark.parametrize(
    ("query", "expected"),
    [({"q": "FLIGHTS"}, 1), ({"state": "unknown"}, 3), ({"cluster": "apac"}, 3), ({"q": "nothing like it"}, 0)],
)
def test_jobs_are_found_by_name_state_and_cluster(
    operator: Client, now: datetime, query: dict[str, str], expected: int
) -> None:
    sample_fleet.make_troubled_fleet(now)
    assert operator.get(reverse("fleet"), query).context["fleet"].shown.count == expected


def test_the_live_part_is_a_fragment(operator: Client, now: datetime) -> None:
    make.make_job(make.make_cluster(now))
    response = operator.get(reverse("fleet"), headers={"HX-Request": "true", "HX-Target": "fleet-live"})
    assert "<html" not in response.content.decode()


def test_two_hundred_jobs_need_as_many_queries_as_ten(
    operator: Client, now: datetime, django_assert_max_num_queries: Queries
) -> None:
    cluster = make.make_cluster(now)
    _jobs(cluster, now, 10)
    with django_assert_max_num_queries(32) as few:
        operator.get(reverse("fleet"))
    _jobs(cluster, now, 190)
    with django_assert_max_num_queries(32) as many:
        response = operator.get(reverse("fleet"))
    with django_assert_max_num_queries(32) as more:
        grown = operator.get(reverse("fleet"), {"upto": "3"}, headers=LIVE)
    assert len(many) == len(few)
    assert len(more) <= len(few)
    assert len(grown.context["fleet"].shown.rows) == 150
    assert len(response.context["fleet"].shown.rows) == 50
    assert len(response.context["fleet"].strip) == 200


def test_rows_loaded_on_scroll_are_neither_repeated_nor_skipped_if_the_order_changes(
    operator: Client, now: datetime
) -> None:
    cluster = make.make_cluster(now)
    _jobs(cluster, now, 120)
    first = operator.get(reverse("fleet"))
    assert _names(first) == [f"job-{n:04}" for n in range(50)]
    _fail(cluster, "job-0070")  # moves from a later page to the top
    _fail(cluster, "job-0010")
    grown = operator.get(reverse("fleet"), {"upto": "2"}, headers=LIVE)
    rest = [f"job-{n:04}" for n in range(120) if n not in (10, 70)]
    assert set(_names(grown)[:2]) == {"job-0010", "job-0070"}
    assert _names(grown)[2:] == rest[:98]
    assert _rows(grown) == _names(grown)
    _fail(cluster, "job-0119")
    whole = operator.get(reverse("fleet"), {"upto": "3"}, headers=LIVE)
    assert sorted(_names(whole)) == [f"job-{n:04}" for n in range(120)]
    assert 'id="more"' not in whole.content.decode()


def test_longer_lists_are_refreshed_less_often(operator: Client, now: datetime) -> None:
    _jobs(make.make_cluster(now), now, 120)
    assert 'hx-trigger="tick from:body"' in operator.get(reverse("fleet"), headers=LIVE).content.decode()
    grown = operator.get(reverse("fleet"), {"upto": "3"}, headers=LIVE).content.decode()
    assert 'hx-trigger="tick-3 from:body"' in grown
    assert 'id="fleet-upto" name="upto" value="3" hx-get="/?"' in grown


def test_each_page_of_the_list_has_an_address(operator: Client, now: datetime) -> None:
    _jobs(make.make_cluster(now), now, 60)
    first = operator.get(reverse("fleet"), {"cluster": "waymark"}).content.decode()
    assert 'href="?cluster=waymark&amp;page=2"' in first
    assert 'hx-get="?cluster=waymark&amp;upto=2"' in first
    second = operator.get(reverse("fleet"), {"cluster": "waymark", "page": "2"})
    assert _names(second) == [f"job-{n:04}" for n in range(50, 60)]
    assert 'href="?cluster=waymark&amp;page=1"' in second.content.decode()


def test_a_list_grows_to_at_most_300_rows(operator: Client, now: datetime) -> None:
    cluster = make.make_cluster(now)
    for n in range(320):
        make.make_job(cluster, f"job-{n:04}")
    grown = operator.get(reverse("fleet"), {"upto": "99"}, headers=LIVE)
    assert len(_names(grown)) == 300
    page = grown.content.decode()
    assert 'href="?page=7"' in page
    assert "upto=7" not in page


@pytest.mark.parametrize("query", [{"page": "x"}, {"upto": "-1"}, {"upto": "9" * 40}, {"page": "٣", "upto": "²"}])
def test_page_number_out_of_range_shows_the_nearest_page(
    operator: Client, now: datetime, query: dict[str, str]
) -> None:
    make.make_job(make.make_cluster(now), "the only one")
    assert _names(operator.get(reverse("fleet"), query)) == ["the only one"]


def test_the_newest_checkpoint_may_belong_to_an_earlier_run(operator: Client, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now))
    old = make.make_run(job, now - timedelta(days=9), age=timedelta(days=2), state=RunState.CANCELED)
    done = make.make_checkpoints(old, now - timedelta(days=9), make.Shape(count=3))[-1]
    make.make_run(job, now)
    facts = operator.get(reverse("fleet")).context["fleet"].shown.rows[0].facts
    assert facts.last_completed_at == done.latest_ack_at
    assert facts.run.number == 2


def test_a_download_has_every_job_that_the_filters_choose(operator: Client, now: datetime) -> None:
    cluster = make.make_cluster(now)
    _jobs(cluster, now, 60)
    _fail(cluster, "job-0033")
    taken = list(csv.DictReader(io.StringIO(_taken(operator, "csv"))))
    assert [row["job"] for row in taken][:2] == ["job-0033", "job-0000"]
    assert len(taken) == 60
    assert taken[1]["state_size_bytes"]
    failing = json.loads(_taken(operator, "json", state="failing"))
    assert [(row["job"], row["level"]) for row in failing] == [("job-0033", "failing")]
    assert operator.get(reverse("fleet-download", args=["csv"]), {"labels": "=="}).status_code == 400


@pytest.mark.parametrize(
    ("sort", "descending"),
    [
        ("name", ["c", "b", "a"]),
        ("state", ["a", "c", "b"]),
        ("completed", ["a", "c", "b"]),
        ("duration", ["b", "c", "a"]),
        ("size", ["c", "a", "b"]),
        ("savepoint", ["b", "a", "c"]),
        ("failures", ["c", "a", "b"]),
    ],
)
def test_each_column_sorts_in_both_directions(
    operator: Client, now: datetime, sort: str, descending: list[str]
) -> None:
    _three_jobs(now)
    assert _names(operator.get(reverse("fleet"), {"sort": sort, "order": "desc"})) == descending
    ascending = _names(operator.get(reverse("fleet"), {"sort": sort, "order": "asc"}))
    if sort == "savepoint":  # the job without a savepoint is last in both directions
        assert ascending == ["a", "b", "c"]
    else:
        assert ascending == descending[::-1]


def test_the_heading_of_the_sorted_column_is_marked_and_reverses_the_order(operator: Client, now: datetime) -> None:
    _three_jobs(now)
    page = operator.get(reverse("fleet"), {"sort": "size", "order": "desc", "q": "a"}).content.decode()
    assert page.count("aria-sort=") == 1
    heading = re.search(
        r'<th scope="col" class="num" aria-sort="descending"[^>]*><a class="sort" id="by-size"[^>]*>', page
    )
    assert heading is not None
    assert "q=a" in heading[0]
    assert "sort=size&amp;order=asc" in heading[0]
    assert "Sort by urgency" in page
    assert "aria-sort" not in operator.get(reverse("fleet"), {"sort": "password"}).content.decode()


def test_a_download_has_the_order_of_the_list(operator: Client, now: datetime) -> None:
    _three_jobs(now)
    sizes = json.loads(_taken(operator, "json", sort="size", order="desc"))
    assert [row["job"] for row in sizes] == ["c", "a", "b"]


def test_ended_jobs_are_folded_until_the_reader_shows_them(operator: Client, now: datetime) -> None:
    cluster = make.make_cluster(now)
    _jobs(cluster, now, 12)
    _end(cluster, "job-0003", "job-0007")
    running = [f"job-{n:04}" for n in range(12) if n not in (3, 7)]
    folded = operator.get(reverse("fleet"))
    assert _names(folded) == running
    page = folded.content.decode()
    assert 'href="?ended=1">Show 2 ended jobs</a>' in page
    assert "cell-ended" not in page
    shown = operator.get(reverse("fleet"), {"ended": "1"})
    assert _names(shown) == [*running, "job-0003", "job-0007"]
    page = shown.content.decode()
    assert ">Hide 2 ended jobs</a>" in page
    assert "cell-ended" not in page


@pytest.mark.parametrize("query", [{"state": "ended"}, {"q": "job-0003"}])
def test_ended_jobs_are_listed_if_the_filter_finds_only_them(
    operator: Client, now: datetime, query: dict[str, str]
) -> None:
    cluster = make.make_cluster(now)
    _jobs(cluster, now, 12)
    _end(cluster, "job-0003")
    response = operator.get(reverse("fleet"), query)
    assert _names(response) == ["job-0003"]
    assert "ended jobs" not in response.content.decode()


def test_a_download_has_the_ended_jobs_too(operator: Client, now: datetime) -> None:
    cluster = make.make_cluster(now)
    _jobs(cluster, now, 3)
    _end(cluster, "job-0001")
    assert [row["job"] for row in json.loads(_taken(operator, "json"))] == ["job-0000", "job-0002", "job-0001"]


def test_jobs_are_grouped_by_a_label_of_the_job_or_its_cluster(operator: Client, now: datetime) -> None:
    """The group with the most urgent job is first, and the jobs without the label are last."""
    cluster = make.make_cluster(now)
    labels = ({}, {"team": "mail"}, {"team": "<b>"}, {"team": "mail"}, {"team": "<b>"}, {})
    for n, own in enumerate(labels):
        make.make_run(make.make_job(cluster, f"job-{n:04}", labels=own), now, checkpoint_config=make.config(3_600_000))
    _fail(cluster, "job-0000")
    _fail(cluster, "job-0004")
    grouped = operator.get(reverse("fleet"), {"group": "team"})
    assert _names(grouped) == ["job-0004", "job-0002", "job-0001", "job-0003", "job-0000", "job-0005"]
    page = grouped.content.decode()
    assert re.findall(r'<tr class="group-row"><td colspan="12"><b>(.*?)</b> (.*?)</td>', page) == [
        ('<a href="/?labels=team%3D%3Cb%3E">team=&lt;b&gt;</a>', "1 failing · 1 healthy"),
        ('<a href="/?labels=team%3Dmail">team=mail</a>', "2 healthy"),
        ("without the label team", "1 failing · 1 healthy"),
    ]
    cluster.labels = {"team": "platform"}
    cluster.save()
    assert _names(operator.get(reverse("fleet"), {"group": "team"}))[:2] == ["job-0000", "job-0005"]


def test_the_list_can_be_grouped_by_each_label_that_exists(operator: Client, now: datetime) -> None:
    cluster = make.make_cluster(now)
    cluster.labels = {"env": "prod"}
    cluster.save()
    make.make_job(cluster, labels={"team": "mail"})
    response = operator.get(reverse("fleet"), {"q": "f"})
    assert response.context["fleet"].label_keys == ["env", "team"]
    page = response.content.decode()
    assert 'href="?q=f&amp;group=team">team</a>' in page
    assert "group-row" not in page


def test_the_wall_board_has_large_numbers_and_no_navigation(operator: Client, now: datetime) -> None:
    sample_fleet.make_troubled_fleet(now)
    response = operator.get(reverse("fleet"), {"kiosk": "1"})
    counts = {level.word: count for level, count in response.context["levels"]}
    assert counts == {"failing": 1, "overdue": 1, "degraded": 1, "unknown": 3, "healthy": 18}
    assert [row.health.level.word for row in response.context["troubled"]] == [
        *("failing", "overdue", "degraded"),
        *("unknown", "unknown", "unknown"),
    ]
    page = response.content.decode()
    assert 'class="kiosk-level kiosk-bad"><b>1</b>' in page
    assert "orders-enrich" in page
    for part in ('<nav class="nav"', reverse("logout"), "<form", "<table"):
        assert part not in page


def test_the_wall_board_refreshes_itself_with_its_filters(operator: Client, now: datetime) -> None:
    cluster = make.make_cluster(now)
    for name, labels in (("orders", {"team": "payments"}), ("clicks", {"team": "web"})):
        run = make.make_run(make.make_job(cluster, name, labels=labels), now)
        Run.objects.filter(pk=run.pk).update(state="FAILED")
    query = {"kiosk": "1", "labels": "team=payments"}
    page = operator.get(reverse("fleet"), query).content.decode()
    assert 'hx-get="/?kiosk=1&amp;labels=team%3Dpayments" hx-trigger="tick from:body"' in page
    assert 'href="?labels=team%3Dpayments">Leave the wall board</a>' in page
    live = operator.get(reverse("fleet"), query, headers={"HX-Request": "true", "HX-Target": "kiosk-live"})
    assert [row.facts.name for row in live.context["troubled"]] == ["orders"]
    assert "<html" not in live.content.decode()


def test_the_wall_board_says_how_many_jobs_it_leaves_out(operator: Client, now: datetime) -> None:
    cluster = make.make_cluster(now)
    assert "No matching jobs" in operator.get(reverse("fleet"), {"kiosk": "1"}).content.decode()
    _jobs(cluster, now, 11)
    assert "No job has a problem." in operator.get(reverse("fleet"), {"kiosk": "1"}).content.decode()
    Run.objects.update(state="FAILED")
    assert "3 more jobs with a problem" in operator.get(reverse("fleet"), {"kiosk": "1"}).content.decode()


def test_figures_are_those_of_the_last_hour(operator: Client, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now, age=timedelta(days=2))
    make.make_checkpoints(run, now - timedelta(hours=2), make.Shape(count=5, base_ms=90_000))
    recent = make.make_checkpoints(run, now, make.Shape(count=20, first_id=50, failed=frozenset({3})))
    figures = operator.get(reverse("fleet")).context["fleet"].shown.rows[0].figures
    done = sorted(c.end_to_end_duration for c in recent if c.status == "COMPLETED")
    assert done[-2] <= figures.duration_p95 <= done[-1]
    assert len(figures.durations) == 19
    assert figures.failed_per_day == (0, 0, 0, 0, 0, 0, 1)


def _jobs(cluster: Cluster, now: datetime, count: int) -> None:
    start = cluster.jobs.count()
    for n in range(start, start + count):
        job = make.make_job(cluster, f"job-{n:04}")
        run = make.make_run(job, now, checkpoint_config=make.config(3_600_000))  # no job is late on a slow machine
        make.make_checkpoints(run, now, make.Shape(count=3), n)
        make.make_savepoint(run, now)


def _end(cluster: Cluster, *names: str) -> None:
    assert Run.objects.filter(job__cluster=cluster, job__name__in=names).update(state="FINISHED") == len(names)


def _three_jobs(now: datetime) -> None:
    """Create the jobs a, b and c, which differ in each column. Their statuses are RUNNING, CANCELLING and FAILED."""
    cluster = make.make_cluster(now)
    for name, state, minutes, duration, size, failed in (
        ("a", RunState.RUNNING, 9, 300, 2_000, 2),
        ("b", RunState.CANCELLING, 3, 900, 1_000, 0),
        ("c", RunState.FAILED, 6, 600, 3_000, 3),
    ):
        run = make.make_run(make.make_job(cluster, name), now, age=timedelta(hours=1), state=state)
        shape = make.Shape(count=6, failed=frozenset(range(failed)))
        rows = make.make_checkpoints(run, now - timedelta(minutes=minutes), shape)
        newest = [row for row in rows if row.status == "COMPLETED"][-1]
        Checkpoint.objects.filter(pk=newest.pk).update(end_to_end_duration=duration, state_size=size)
    for name, hours in (("a", 1), ("b", 2)):
        make.make_savepoint(Run.objects.get(job__name=name), now - timedelta(hours=hours))


def _fail(cluster: Cluster, name: str) -> None:
    assert Run.objects.filter(job__cluster=cluster, job__name=name).update(state="FAILED") == 1


def _names(response: Any) -> list[str]:
    return [row.facts.job.name for row in response.context["fleet"].shown.rows]


def _rows(response: Any) -> list[str]:
    return re.findall(r'class="job-name one-line"[^>]* title="([^"]+)"', response.content.decode())


def _taken(client: Client, form: str, **query: str) -> str:
    return b"".join(client.get(reverse("fleet-download", args=[form]), query).streaming_content).decode()  # type: ignore[arg-type]
