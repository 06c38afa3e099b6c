"""Lists show buttons only in rows that the reader may operate. An account with grants may operate some rows only."""

from __future__ import annotations

import re
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from dashboard.api.typed import filled
from dashboard.forms.rule import RuleForm
from dashboard.views.rules import template_of
from monitoring.alerts.kinds import kinds
from monitoring.alerts.kinds.base import Kind, Subject
from monitoring.models import (
    Account,
    AlertRule,
    AutomationPause,
    Channel,
    Grant,
    Incident,
    IncidentState,
    MaintenanceWindow,
    Notification,
)
from tests.dashboard.access.sample_rows import Rows, rows_of_every_kind
from tests.dashboard.builders import make_job

ANSWERS = re.compile("connection refused|250 accepted")


@pytest.fixture
def acted(db: None, now: datetime) -> Rows:
    return rows_of_every_kind(now, "acted")


@pytest.fixture
def seen(db: None, now: datetime, acted: Rows) -> Rows:
    return rows_of_every_kind(now, "seen")


@pytest.fixture
def granted(acted: Rows, seen: Rows, now: datetime) -> Client:
    """Return a client with grants only: operator of one cluster, viewer of another."""
    user = User.objects.create_user("grace")
    Account.objects.create(user=user, granted_only=True)
    for role, rows in (("operator", acted), ("viewer", seen)):
        Grant.objects.create(user=user, role=role, cluster=rows.cluster, created_at=now, created_by="admin")
    client = Client()
    client.force_login(user)
    return client


def test_an_operator_creates_rules_only_for_jobs_with_a_grant(granted: Client, acted: Rows, seen: Rows) -> None:
    address = "/rules/new/restart_loop/"
    form = granted.get(address).context["form"]
    assert [value for value, _label in form.fields["scope"].choices] == ["job"]
    typed = {name: form[name].value() for name in form.fields if form[name].value() not in (None, [], False)}
    assert granted.post(address, typed | {"scope": "everything"}).status_code == 422
    assert granted.post(address, typed | {"job": seen.job.name}).status_code == 403
    assert not AlertRule.objects.filter(kind="restart_loop").exists()
    assert granted.post(address, typed | {"job": acted.job.name}).status_code == 302
    assert AlertRule.objects.get(kind="restart_loop").job == acted.job


def page(client: Client, address: str) -> str:
    return client.get(address).content.decode()


def test_only_jobs_that_the_account_may_operate_can_be_selected_in_the_fleet(
    granted: Client, acted: Rows, seen: Rows
) -> None:
    fleet = page(granted, "/")
    assert 'class="chosen-bar"' in fleet
    assert f'name="jobs" value="{acted.job.pk}"' in fleet
    assert f'name="jobs" value="{seen.job.pk}"' not in fleet


def test_only_incidents_of_operated_jobs_can_be_acknowledged(granted: Client, acted: Rows, seen: Rows) -> None:
    mine, other = acted.ids["incidents"], seen.ids["incidents"]
    listed = page(granted, "/incidents/")
    assert f'value="{mine}" aria-label="Select incident' in listed
    assert f'value="{other}" aria-label="Select incident' not in listed
    granted.post("/incidents/acknowledge/", {"incident": [mine, other]})
    states = dict(Incident.objects.filter(pk__in=[mine, other]).values_list("pk", "state"))
    assert states == {mine: IncidentState.ACKNOWLEDGED, other: IncidentState.OPEN}


def test_only_maintenance_of_operated_jobs_can_be_planned_and_ended(granted: Client, acted: Rows, seen: Rows) -> None:
    listed = page(granted, "/maintenance/")
    assert f"/maintenance/{acted.ids['maintenance']}/end/" in listed
    assert f"/maintenance/{seen.ids['maintenance']}/end/" not in listed
    assert '<option value="acted-job">' in listed
    assert '<option value="seen-job">' not in listed
    assert 'value="selector"' not in listed
    typed = {"scope": "cluster", "cluster": seen.cluster.pk, "lasts": "1 h", "reason": "x"}
    assert granted.post("/maintenance/", typed).status_code == 422
    assert granted.post("/maintenance/", typed | {"cluster": acted.cluster.pk}).status_code == 302
    assert MaintenanceWindow.objects.filter(cluster=acted.cluster).exists()


def test_only_pauses_of_operated_clusters_can_be_started_and_ended(
    granted: Client, acted: Rows, seen: Rows, now: datetime
) -> None:
    listed = page(granted, "/automation/")
    assert f"/automation/pauses/{acted.ids['pauses']}/end/" in listed
    assert f"/automation/pauses/{seen.ids['pauses']}/end/" not in listed
    assert granted.post("/automation/", {"cluster": "", "reason": "all of it"}).status_code == 422
    AutomationPause.objects.filter(cluster=acted.cluster).update(ended_at=now)
    assert granted.post("/automation/", {"cluster": acted.cluster.pk, "reason": "mine"}).status_code == 302


def test_a_viewer_has_no_buttons(viewer: Client, acted: Rows) -> None:
    for address, button in (
        ("/", "chosen-bar"),
        ("/incidents/", "Select incident"),
        ("/maintenance/", "Plan window"),
        ("/automation/", "/end/"),
    ):
        assert button not in page(viewer, address)


def test_messages_of_visible_jobs_are_listed_and_those_of_operated_jobs_can_be_retried(
    granted: Client, acted: Rows, seen: Rows, now: datetime
) -> None:
    hidden = rows_of_every_kind(now, "hidden")
    ids = {name: rows.ids["messages"] for name, rows in (("acted", acted), ("seen", seen), ("hidden", hidden))}
    listed = page(granted, "/messages/")
    assert {name: f"/messages/{pk}/" in listed for name, pk in ids.items()} == {
        "acted": True,
        "seen": True,
        "hidden": False,
    }
    assert [granted.get(f"/messages/{pk}/").status_code for pk in ids.values()] == [200, 200, 404]
    retried = [granted.post(f"/messages/{pk}/retry/").status_code for pk in ids.values()]
    assert retried == [302, 403, 404]
    by_api = [granted.get(f"/api/v1/messages/{pk}").status_code for pk in ids.values()]
    assert by_api == [200, 200, 404]


def test_a_message_that_mentions_a_hidden_job_is_not_found(granted: Client, acted: Rows, now: datetime) -> None:
    hidden = rows_of_every_kind(now, "hidden")
    result = Notification.objects.filter(delivery=hidden.ids["messages"])
    assert result.update(delivery=acted.ids["messages"]) == 1
    assert granted.get(f"/messages/{acted.ids['messages']}/").status_code == 404


@pytest.mark.parametrize("named", ["{job}", "{cluster}/{job}"])
def test_hidden_and_missing_jobs_get_the_same_response(granted: Client, acted: Rows, now: datetime, named: str) -> None:
    hidden = rows_of_every_kind(now, "hidden")
    make_job(hidden.cluster, acted.job.name)  # a hidden job with the same name is not revealed either
    for address, options in (("/maintenance/", {}), ("/api/v1/maintenance", {"content_type": "application/json"})):
        answers = []
        for job, cluster in ((hidden.job.name, hidden.cluster.name), ("nothing", "nowhere")):
            text = named.format(job=job, cluster=cluster)
            typed = {"scope": "job", "job": text, "lasts": "1 h", "reason": "x"}
            answer = granted.post(address, typed, **options)
            html = re.findall(
                r"There is no job named.*|.* Enter .*|.*hidden-.*", answer.content.decode().replace(text, "NAME")
            )
            answers.append((answer.status_code, html))
        assert answers[0] == answers[1]
        assert (answers[0][0], "There is no job named" in answers[0][1][0]) == (422, True)
    typed = {"scope": "job", "job": acted.job.name, "lasts": "1 h", "reason": "x"}
    assert granted.post("/maintenance/", typed).status_code == 302


def test_actions_on_a_visible_job_without_a_grant_return_403(granted: Client, seen: Rows) -> None:
    typed = {"scope": "job", "job": seen.job.name, "lasts": "1 h", "reason": "x"}
    assert granted.post("/maintenance/", typed).status_code == 403
    assert granted.post("/api/v1/maintenance", typed, content_type="application/json").status_code == 403


def test_messages_hide_foreign_channels_and_responses_of_receivers(
    granted: Client, viewer: Client, acted: Rows, now: datetime
) -> None:
    hidden = rows_of_every_kind(now, "hidden")
    foreign = Channel.objects.get(pk=hidden.ids["channels"])
    own = Channel.objects.get(pk=acted.ids["channels"])
    message = acted.ids["messages"]
    addresses = ("/messages/", f"/messages/{message}/", f"/incidents/{acted.ids['incidents']}/")
    for address in (*addresses, f"/api/v1/messages/{message}"):
        html = page(granted, address)
        assert foreign.name not in html
        assert not ANSWERS.search(html)
        assert f'href="/channels/{own.pk}/"' not in html
        assert ANSWERS.search(page(viewer, address))
    for address in addresses:
        assert own.name in page(granted, address)
    assert foreign.name in page(viewer, "/messages/")


def test_a_rule_page_hides_foreign_channels_from_accounts_limited_by_grants(
    granted: Client, viewer: Client, acted: Rows, seen: Rows
) -> None:
    foreign = Channel.objects.get(pk=acted.ids["channels"])
    AlertRule.objects.get(pk=seen.ids["rules"]).channels.set([seen.ids["channels"]])
    seen_rule = page(granted, f"/rules/{seen.ids['rules']}/")
    assert foreign.name not in seen_rule
    assert Channel.objects.get(pk=seen.ids["channels"]).name in seen_rule
    assert foreign.name in page(granted, f"/rules/{acted.ids['rules']}/")
    assert foreign.name in page(viewer, f"/rules/{seen.ids['rules']}/")


def test_rules_about_waymark_are_only_for_accounts_that_see_everything(
    granted: Client, operator: Client, acted: Rows
) -> None:
    (kind,) = [kind for kind in kinds().values() if kind.subject is Subject.WAYMARK][:1]
    chart = f"/rules/backtest/{kind.name}.json?{valid_of(kind)}"
    assert [reader.get(chart).status_code for reader in (operator, granted)] == [200, 404]


def valid_of(kind: Kind) -> str:
    form = RuleForm(kind, template_of(kind, None))
    return filled(form, {}).urlencode()
