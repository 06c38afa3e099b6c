"""What the page of a restart attempt says of the states that it could go on from."""

from __future__ import annotations

from datetime import datetime

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import Job, RefusedStart
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
WAITED = {"place": "s3://flink/checkpoints/3fd0", "waited_s": 5.0}
NOT_WAITED = {"place": "s3://flink/checkpoints/77aa", "waited_s": 0.0}


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_run(job, now)
    return job


def told(client: Client, job: Job, now: datetime, silent: list[dict[str, object]]) -> str:
    attempt = make.make_attempt(job, now, silent=silent)
    page = client.get(reverse("restart-progress", args=[attempt.pk])).content.decode()
    return " ".join(page.split())


def test_which_storage_did_not_answer_and_how_long_it_was_waited_for(viewer: Client, job: Job, now: datetime) -> None:
    page = told(viewer, job, now, [WAITED])
    assert "<dt>Not looked at</dt>" in page
    assert WAITED["place"] in page
    assert "Its storage was waited for 5 s and did not answer." in page
    assert "Checkpoints that lie there and that no poll saw could not be looked up." in page


def test_one_that_was_not_waited_for_says_why(viewer: Client, job: Job, now: datetime) -> None:
    page = told(viewer, job, now, [NOT_WAITED])
    assert "Its storage was not waited for: looks before this one had no answer." in page


def test_in_chinese(viewer: Client, job: Job, now: datetime) -> None:
    viewer.post(reverse("set_language"), {"language": "zh-hans", "next": "/"})
    page = told(viewer, job, now, [WAITED, NOT_WAITED])
    assert "<dt>未能查看</dt>" in page
    assert "等待其存储 5 秒，没有响应。 位于该处且从未被轮询到的检查点无法查找。" in page
    assert "未等待其存储：此前的查看均无响应。" in page


def test_the_directory_that_a_refused_start_left_is_named(viewer: Client, job: Job, now: datetime) -> None:
    attempt = make.make_attempt(job, now)
    for number, left in enumerate(("", "file:/cp/77aa", None)):
        RefusedStart.objects.create(
            attempt=attempt, engine_job_id=f"{number}" * 32, path="file:/cp/1", refused_at=now, left_directory=left
        )
    page = viewer.get(reverse("restart-progress", args=[attempt.pk])).content.decode()
    assert page.count("<dt>Left behind</dt>") == 1
    assert "file:/cp/77aa" in page
    assert "If WAYMARK_STATE_ROOTS names its storage, Waymark looks for checkpoints there" in page


def test_where_all_storage_answered_nothing_is_said(viewer: Client, job: Job, now: datetime) -> None:
    assert "Not looked at" not in told(viewer, job, now, [])
