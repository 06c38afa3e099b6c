from __future__ import annotations

from datetime import datetime

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import AlertRule, AuditEntry, Job
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
GOOD = {"threshold": "5", "window_s": "30 min", "check_every_s": "90 s", "severity": "critical", "enabled": "on"}


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_run(job, now)
    return job


def test_a_good_rule_is_saved_audited_and_checked_at_once(operator: Client, job: Job, now: datetime) -> None:
    rule, channel = make.make_rule(job), make.make_channel()
    response = operator.post(reverse("job-rule", args=[job.pk]), GOOD | {"channels": [channel.pk]})
    assert response.status_code == 302
    rule.refresh_from_db()
    assert (rule.threshold, rule.window_s, rule.check_every_s, rule.severity) == (5, 1800, 90, "critical")
    assert list(rule.channels.all()) == [channel]
    assert rule.next_check_at is not None
    assert rule.next_check_at >= now
    assert AuditEntry.objects.get(action="rule.change").actor == "olga"


def test_the_first_rule_of_a_job_is_made_by_the_same_form(operator: Client, job: Job) -> None:
    operator.post(reverse("job-rule", args=[job.pk]), GOOD)
    assert AlertRule.objects.get(job=job).threshold == 5


@pytest.mark.parametrize(
    ("field", "typed", "told"),
    [
        ("threshold", "0", "At least 1"),
        ("threshold", "many", "Write a whole number"),
        ("threshold", "", "required"),
        ("threshold", "100001", "At most 100000"),
        ("window_s", "-5 min", "is not allowed: from 1 min to 30 d"),
        ("window_s", "0 s", "is not allowed"),
        ("window_s", "9" * 400 + " d", "Write a number and a unit"),
        ("window_s", "15", "Write a number and a unit"),
        ("window_s", "a while", "Write a number and a unit"),
        ("check_every_s", "1 s", "from 5 s to 1 d"),
        ("severity", "mild", "mild"),
    ],
)
def test_a_bad_value_is_named_with_its_field_and_nothing_is_lost(
    operator: Client, job: Job, field: str, typed: str, told: str
) -> None:
    rule = make.make_rule(job)
    response = operator.post(reverse("job-rule", args=[job.pk]), GOOD | {field: typed})
    page = response.content.decode()
    assert response.status_code == 422
    assert told in str(response.context["form"].errors[field])
    assert list(response.context["form"].errors) == [field]
    assert response.context["form"][field].value() == typed
    assert 'value="30 min"' in page or field == "window_s"
    rule.refresh_from_db()
    assert rule.threshold == 3


def test_automation_is_changed_and_its_schedule_begins(operator: Client, job: Job, now: datetime) -> None:
    typed = {"savepoint_schedule": "2 h", "restore_from": "savepoint", "max_restarts_per_hour": "3"}
    assert operator.post(reverse("job-automation", args=[job.pk]), typed).status_code == 302
    job.refresh_from_db()
    assert (job.savepoint_interval_s, job.restore_from, job.auto_restart) == (7200, "savepoint", False)
    assert job.next_savepoint_at is not None
    assert job.next_savepoint_at > now
    assert AuditEntry.objects.filter(action="job.automation").exists()


def test_times_of_cron_are_kept_in_their_zone(operator: Client, job: Job) -> None:
    typed = {"restore_from": "newest", "max_restarts_per_hour": "3"}
    times = {"savepoint_schedule": " 0  3 * * MON ", "savepoint_time_zone": "Asia/Shanghai"}
    operator.post(reverse("job-automation", args=[job.pk]), typed | times)
    job.refresh_from_db()
    assert (job.savepoint_cron, job.savepoint_time_zone) == ("0 3 * * MON", "Asia/Shanghai")
    page = operator.get(reverse("job-savepoints", args=[job.pk])).content.decode()
    assert "at 03:00 on Monday (Asia/Shanghai)" in page

    wrong = operator.post(reverse("job-automation", args=[job.pk]), typed | times | {"savepoint_time_zone": "Mars"})
    assert list(wrong.context["form"].errors) == ["savepoint_time_zone"]


def test_an_empty_interval_ends_the_schedule(operator: Client, job: Job) -> None:
    typed = {"savepoint_schedule": "", "restore_from": "newest", "max_restarts_per_hour": "3"}
    operator.post(reverse("job-automation", args=[job.pk]), typed)
    job.refresh_from_db()
    assert (job.savepoint_interval_s, job.next_savepoint_at) == (None, None)


@pytest.mark.parametrize(
    ("field", "typed", "told"),
    [
        ("savepoint_schedule", "-1 h", "is not allowed"),
        ("savepoint_schedule", "often", "Write a number and a unit"),
        ("savepoint_schedule", "0 0 30 2 *", "Bad day-of-month"),
        ("savepoint_schedule", "0 3 * *", "Five fields are needed"),
        ("max_restarts_per_hour", "0", "At least 1"),
        ("automation_paused", "on", "Say why"),
    ],
)
def test_bad_automation_is_named_and_changes_nothing(
    operator: Client, job: Job, field: str, typed: str, told: str
) -> None:
    good = {"savepoint_schedule": "2 h", "restore_from": "newest", "max_restarts_per_hour": "3"}
    response = operator.post(reverse("job-automation", args=[job.pk]), good | {field: typed})
    assert response.status_code == 422
    assert told in str(response.context["form"].errors)
    job.refresh_from_db()
    assert job.savepoint_interval_s == 3600
