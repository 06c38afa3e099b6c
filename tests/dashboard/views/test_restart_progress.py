"""The page of a restart attempt shows the snapshots from which it could start."""

from __future__ import annotations

from datetime import datetime

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import AttemptState, Job, RefusedStart
from monitoring.reasons.columns import columns
from monitoring.reasons.recovery import RecoveryReason
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
WAITED = {"place": "s3://flink/checkpoints/3fd0", "waited_s": 5.0}
NOT_WAITED = {"place": "s3://flink/checkpoints/77aa", "waited_s": 0.0}


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_run(job, now)
    return job


def page_of(client: Client, job: Job, now: datetime, silent: list[dict[str, object]]) -> str:
    attempt = make.make_attempt(job, now, silent=silent)
    page = client.get(reverse("restart-progress", args=[attempt.pk])).content.decode()
    return " ".join(page.split())


def test_unresponsive_storage_is_shown_with_the_time_waited(viewer: Client, job: Job, now: datetime) -> None:
    page = page_of(viewer, job, now, [WAITED])
    assert "<dt>Not searched</dt>" in page
    assert WAITED["place"] in page
    assert "The storage did not respond within 5 s." in page
    assert "Checkpoints there that Waymark never polled could not be found." in page


def test_storage_that_was_skipped_is_shown_with_the_reason(viewer: Client, job: Job, now: datetime) -> None:
    page = page_of(viewer, job, now, [NOT_WAITED])
    assert "Waymark did not wait for this storage, because earlier requests got no response." in page


def test_unresponsive_storage_is_explained_in_chinese(viewer: Client, job: Job, now: datetime) -> None:
    viewer.post(reverse("set_language"), {"language": "zh-hans", "next": "/"})
    page = page_of(viewer, job, now, [WAITED, NOT_WAITED])
    assert "<dt>未搜索</dt>" in page
    assert "存储在 5 秒内没有响应。 无法找到位于该处且从未被 Waymark 轮询到的检查点。" in page
    assert "Waymark 没有等待此存储，因为此前的请求均无响应。" in page


def test_the_directory_left_by_a_refused_start_is_shown(viewer: Client, job: Job, now: datetime) -> None:
    attempt = make.make_attempt(job, now)
    for number, left in enumerate(("", "file:/cp/77aa", None)):
        RefusedStart.objects.create(
            attempt=attempt, engine_job_id=f"{number}" * 32, path="file:/cp/1", refused_at=now, left_directory=left
        )
    page = viewer.get(reverse("restart-progress", args=[attempt.pk])).content.decode()
    assert page.count("<dt>Leftover directory</dt>") == 1
    assert "file:/cp/77aa" in page
    assert "If WAYMARK_STATE_ROOTS contains its storage, Waymark looks for checkpoints there" in page


def test_no_storage_is_named_if_all_responded(viewer: Client, job: Job, now: datetime) -> None:
    assert "Not searched" not in page_of(viewer, job, now, [])


def test_a_failure_names_its_section_of_the_documentation(viewer: Client, job: Job, now: datetime) -> None:
    error = columns("error", RecoveryReason.NO_STATE_KNOWN())
    attempt = make.make_attempt(job, now, AttemptState.FAILED, **error)

    page = viewer.get(reverse("restart-progress", args=[attempt.pk])).content.decode()

    assert '<a href="/documentation/errors/#recovery.no-state-known">What to do</a>' in page
