"""The menu of a job's row in the fleet leads to the newest failure, to a new rule and to a restart."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from monitoring.models import Account, Grant, Job
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(now: datetime) -> Job:
    return make.make_job(make.make_cluster(now))


def links(client: Client, job: Job) -> list[str]:
    page = client.get(reverse("fleet")).content.decode()
    (row,) = re.findall(rf'<tr class="link">(?:(?!</tr>).)*id="job-{job.pk}".*?</tr>', page, re.DOTALL)
    menu = re.search(r'<td class="row-menu">(.*?)</td>', row, re.DOTALL)
    assert menu is not None
    return re.findall(r'href="([^"]+)"', menu[1])


def test_menu_of_an_operator_has_every_link_that_applies(operator: Client, job: Job, now: datetime) -> None:
    new_rule = f"{reverse('rule-new', args=['failed_in_window'])}?job={job.pk}"
    restart = reverse("job-restart", args=[job.pk])
    run = make.make_run(job, now)
    assert links(operator, job) == [restart, new_rule]
    make.make_checkpoints(run, now, make.Shape(count=3, failed=frozenset({1})))
    make.make_savepoint(run, now - timedelta(minutes=5))
    failure = reverse("job-failure", args=[job.pk])
    assert links(operator, job) == [failure, restart, f"{restart}?from=savepoint", new_rule]
    for address in links(operator, job):
        assert operator.get(address, follow=True).status_code == 200


def test_menu_of_a_viewer_has_only_the_newest_failure(viewer: Client, job: Job, now: datetime) -> None:
    run = make.make_run(job, now)
    assert links(viewer, job) == []
    make.make_checkpoints(run, now, make.Shape(count=3, failed=frozenset({1})))
    assert links(viewer, job) == [reverse("job-failure", args=[job.pk])]


def test_the_grant_for_a_job_decides_on_the_menu_of_its_row(job: Job, now: datetime) -> None:
    other = make.make_job(job.cluster, "other")
    for each in (job, other):
        make.make_run(each, now)
    user = User.objects.create_user("gina")
    Account.objects.create(user=user, granted_only=True)
    given = {"user": user, "created_at": now, "created_by": "anna"}
    Grant.objects.create(cluster=job.cluster, role="viewer", **given)
    Grant.objects.create(selector="job=other", role="operator", **given)
    client = Client()
    client.force_login(user)
    assert links(client, job) == []
    assert reverse("job-restart", args=[other.pk]) in links(client, other)


def test_the_link_leads_to_the_newest_failure_of_all_runs(viewer: Client, job: Job, now: datetime) -> None:
    address = reverse("job-failure", args=[job.pk])
    assert viewer.get(address).headers["Location"] == f"{reverse('job-history', args=[job.pk])}?status=FAILED"
    old = make.make_run(job, now, age=timedelta(hours=2))
    make.make_checkpoints(old, now - timedelta(hours=1), make.Shape(count=2, failed=frozenset({0})))
    new = make.make_run(job, now)
    made = make.make_checkpoints(new, now, make.Shape(count=5, failed=frozenset({1, 3})))
    assert viewer.get(address).headers["Location"] == reverse("checkpoint", args=[made[3].pk])


def test_restart_page_selects_the_newest_savepoint(operator: Client, job: Job, now: datetime) -> None:
    run = make.make_run(job, now)
    address = reverse("job-restart", args=[job.pk])
    missing = operator.get(address, {"from": "savepoint"})
    assert "The requested snapshot is no longer available." in missing.content.decode()
    make.make_savepoint(run, now - timedelta(hours=2))
    newest = make.make_savepoint(run, now - timedelta(minutes=5))
    make.make_savepoint(run, now - timedelta(minutes=1), problem="a file is missing")
    page = operator.get(address, {"from": "savepoint"})
    assert page.context["chosen"].source == newest
    assert "no longer available" not in page.content.decode()


def test_number_of_failures_leads_to_the_newest(viewer: Client, job: Job, now: datetime) -> None:
    make.make_checkpoints(make.make_run(job, now), now, make.Shape(count=4, failed=frozenset({0, 2})))
    page = viewer.get(reverse("fleet")).content.decode()
    assert re.search(rf'<a href="{reverse("job-failure", args=[job.pk])}" title="Newest failed checkpoint">2</a>', page)


def test_tile_without_a_rule_leads_to_the_form(operator: Client, viewer: Client, job: Job, now: datetime) -> None:
    make.make_run(job, now)
    form = f'href="{reverse("rule-new", args=["failed_in_window"])}?job={job.pk}">no alert configured'
    address = reverse("job", args=[job.pk])
    assert form in operator.get(address).content.decode()
    assert form not in viewer.get(address).content.decode()


def test_form_of_a_new_rule_leads_to_the_other_conditions(operator: Client, job: Job, now: datetime) -> None:
    page = operator.get(reverse("rule-new", args=["failed_in_window"]), {"job": job.pk}).content.decode()
    assert f'href="{reverse("rule-kinds")}?job={job.pk}">Select another condition' in " ".join(page.split())
    rule = make.make_rule(job)
    assert "Select another condition" not in operator.get(reverse("rule", args=[rule.pk])).content.decode()
