from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import AuditEntry, Job
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_run(job, now)
    return job


BUDGET = {"max_restarts_per_hour": "3", "max_restarts_per_day": "9"}


def test_automation_is_changed_and_its_schedule_begins(operator: Client, job: Job, now: datetime) -> None:
    typed = {
        "savepoint_schedule": "2 h",
        "restore_from": "savepoint",
        "max_restarts_per_hour": "3",
        "max_restarts_per_day": "9",
    }
    assert operator.post(reverse("job-automation", args=[job.pk]), typed).status_code == 302
    job.refresh_from_db()
    assert (job.savepoint_interval_s, job.restore_from, job.auto_restart) == (7200, "savepoint", False)
    assert job.next_savepoint_at is not None
    assert job.next_savepoint_at > now
    assert AuditEntry.objects.filter(action="job.automation").exists()


def test_cron_times_are_stored_in_their_zone(operator: Client, job: Job) -> None:
    typed = {"restore_from": "newest", **BUDGET}
    times = {"savepoint_schedule": " 0  3 * * MON ", "savepoint_time_zone": "Asia/Shanghai"}
    operator.post(reverse("job-automation", args=[job.pk]), typed | times)
    job.refresh_from_db()
    assert (job.savepoint_cron, job.savepoint_time_zone) == ("0 3 * * MON", "Asia/Shanghai")
    page = operator.get(reverse("job-savepoints", args=[job.pk])).content.decode()
    assert "at 03:00 on Monday (Asia/Shanghai)" in page

    wrong = operator.post(reverse("job-automation", args=[job.pk]), typed | times | {"savepoint_time_zone": "Mars"})
    assert list(wrong.context["form"].errors) == ["savepoint_time_zone"]


def test_an_empty_interval_ends_the_schedule(operator: Client, job: Job) -> None:
    typed = {
        "savepoint_schedule": "",
        "restore_from": "newest",
        "max_restarts_per_hour": "3",
        "max_restarts_per_day": "9",
    }
    operator.post(reverse("job-automation", args=[job.pk]), typed)
    job.refresh_from_db()
    assert (job.savepoint_interval_s, job.next_savepoint_at) == (None, None)


@pytest.mark.parametrize(
    ("field", "typed", "expected"),
    [
        ("savepoint_schedule", "-1 h", "is not allowed"),
        ("savepoint_schedule", "often", "Enter a number and a unit"),
        ("savepoint_schedule", "0 0 30 2 *", "Bad day-of-month"),
        ("savepoint_schedule", "0 3 * *", "Five fields are needed"),
        ("max_restarts_per_hour", "0", "Enter at least 1"),
        ("max_restarts_per_day", "0", "Enter at least 1"),
        ("oldest_state_s", "1 s", "is not allowed"),
        ("automation_paused", "on", "Enter the reason"),
        ("pause_lasts", "5 s", "is not allowed"),
        ("savepoint_schedule", "0 0 31 2 *", "ay-of-month"),
    ],
)
def test_an_invalid_field_is_named_and_nothing_is_saved(
    operator: Client, job: Job, field: str, typed: str, expected: str
) -> None:
    good = {
        "savepoint_schedule": "2 h",
        "restore_from": "newest",
        "max_restarts_per_hour": "3",
        "max_restarts_per_day": "9",
    }
    response = operator.post(reverse("job-automation", args=[job.pk]), good | {field: typed})
    assert response.status_code == 422
    assert expected in str(response.context["form"].errors)
    job.refresh_from_db()
    assert job.savepoint_interval_s == 3600


def test_saving_again_does_not_extend_a_pause(operator: Client, job: Job, now: datetime) -> None:
    typed = {"restore_from": "newest", **BUDGET, "automation_paused": "on", "automation_note": "Disks"}
    url = reverse("job-automation", args=[job.pk])
    assert operator.post(url, typed | {"pause_lasts": "2 h"}).status_code == 302
    job.refresh_from_db()
    assert job.automation_paused_until is not None
    until = job.automation_paused_until
    assert timedelta(hours=1, minutes=59) < until - now < timedelta(hours=2, minutes=1)
    page = operator.get(reverse("automation")).content.decode()
    assert "Disks" in page
    assert 'data-name="Ends">manually' not in page

    operator.post(url, typed | {"pause_lasts": "2 h", "max_restarts_per_hour": "5"})
    job.refresh_from_db()
    assert (job.automation_paused_until, job.max_restarts_per_hour) == (until, 5)

    operator.post(url, typed | {"pause_lasts": ""})
    job.refresh_from_db()
    assert (job.automation_paused, job.automation_paused_until) == (True, None)

    operator.post(url, {key: value for key, value in typed.items() if key != "automation_paused"})
    job.refresh_from_db()
    assert (job.automation_paused, job.automation_paused_until) == (False, None)
