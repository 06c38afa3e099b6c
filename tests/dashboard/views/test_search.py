"""The search box suggests jobs, clusters, incidents and pages."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse

from dashboard.access.reach import NO_REACH
from dashboard.queries.search import find_suggestions
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


def _offered(client: Client, text: str) -> list[tuple[str, str, str]]:
    """Return the suggestions as URL, name and type."""
    page = client.get(reverse("find"), {"q": text}).content.decode()
    return re.findall(r'href="([^"]+)"[^>]*><span class="clip">([^<]+)</span><span[^>]*>([^<]+)</span>', page)


def test_pages_are_found_by_their_names_in_the_readers_language_and_in_english(operator: Client) -> None:
    assert _offered(operator, "cha") == [("/channels/", "Channels", "page")]
    operator.cookies["django_language"] = "zh-hans"
    assert _offered(operator, "通知") == _offered(operator, "cha") == [("/channels/", "通知渠道", "页面")]
    assert not re.search("[A-Za-z]", "".join(name + kind for _, name, kind in _offered(operator, "")))


def test_jobs_are_found_by_the_beginning_of_the_engine_job_id_of_any_run(operator: Client, now: datetime) -> None:
    job = make.make_job(make.make_cluster(now), "flights")
    make.make_run(job, now, age=timedelta(hours=1), engine_job_id="0badcafe" * 4)
    make.make_run(job, now, engine_job_id="56883f7b" * 4)
    make.make_run(make.make_job(job.cluster, "parcels"), now, engine_job_id="56883f7a" * 4)
    hit = (reverse("job", args=[job.pk]), "flights", "run 2 · waymark · job")
    assert _offered(operator, "56883f7b") == _offered(operator, "56883F7B" * 4) == [hit]
    assert _offered(operator, "0badcafe0") == [(reverse("job", args=[job.pk]), "flights", "run 1 · waymark · job")]


@pytest.mark.parametrize("text", ["56883f7", "56883f7c", "6883f7b5", "56883f7b" * 4 + "5", "56883f7%"])
def test_other_texts_find_no_engine_job_id(operator: Client, now: datetime, text: str) -> None:
    make.make_run(make.make_job(make.make_cluster(now), "flights"), now, engine_job_id="56883f7b" * 4)
    assert _offered(operator, text) == []


def test_run_of_a_job_out_of_reach_is_not_found(now: datetime) -> None:
    make.make_run(make.make_job(make.make_cluster(now), "flights"), now, engine_job_id="56883f7b" * 4)
    assert [hit.name for hit in find_suggestions("56883f7b")] == ["flights"]
    assert find_suggestions("56883f7b", NO_REACH) == []
