"""Two people act on pages that they loaded at the same time: the second sees what the first did."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.test import Client
from django.urls import reverse
from pytest_httpserver import HTTPServer

from dashboard.access import tokens
from monitoring.engine.identity import Identity
from monitoring.models import (
    AlertRule,
    ApiToken,
    AttemptState,
    AuditEntry,
    AutomationPause,
    Channel,
    Cluster,
    DeliveryState,
    Grant,
    Incident,
    IncidentEvent,
    IncidentState,
    Job,
    MaintenanceWindow,
    RestartAttempt,
    Run,
    RunState,
    Savepoint,
    SavepointState,
)
from tests.dashboard import builders as make
from tests.dashboard.views.test_launching import TYPED
from tests.dashboard.views.test_runs import OUTCOME

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"
_HIDDEN = re.compile(r'<input type="hidden" name="(shown_\w+)" value="([^"]*)"')


def administrator(name: str) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser(name))
    return client


@pytest.fixture
def ada(db: None) -> Client:
    return administrator("ada")


@pytest.fixture
def bob(db: None) -> Client:
    return administrator("bob")


@pytest.fixture
def engine(httpserver: HTTPServer) -> HTTPServer:
    httpserver.expect_request(re.compile(r"/jobs/\w+"), method="PATCH").respond_with_json({}, status=202)
    return httpserver


@pytest.fixture
def job(now: datetime, engine: HTTPServer) -> Job:
    cluster = make.make_cluster(now)
    Cluster.objects.update(rest_url=engine.url_for("/").rstrip("/"))
    job = make.make_job(cluster)
    run = make.make_run(job, now)
    make.make_savepoint(run, now - timedelta(minutes=9))
    make.make_savepoint(run, now - timedelta(minutes=5))
    return job


def shown(client: Client, page: str) -> dict[str, str]:
    """Return the hidden fields of the page about what it shows."""
    found = dict(_HIDDEN.findall(client.get(page).content.decode()))
    assert found
    return {name: unescape(value) for name, value in found.items()}


def answer_of(client: Client, address: str, typed: dict[str, Any]) -> str:
    response = client.post(address, typed, follow=True)
    return " ".join(unescape(response.content.decode()).split())


def both(
    ada: Client, bob: Client, page: str, typed: dict[str, Any], action: str = "", rows: QuerySet[Any] | None = None
) -> str:
    """Let both people load the page and send it. Return what the second sees.

    `rows` are the rows that the action creates: the second request creates none.
    """
    sent = [(client, shown(client, page)) for client in (ada, bob)]
    pages = []
    for client, hidden in sent:
        pages.append(answer_of(client, action or page, typed | hidden))
        if rows is not None:
            assert rows.count() == 1
    return pages[1]


def test_restart(ada: Client, bob: Client, job: Job) -> None:
    typed = {"from": f"savepoint-{job.savepoints.latest('requested_at').pk}"}
    page = reverse("job-restart", args=[job.pk])
    text = both(ada, bob, page, typed, rows=RestartAttempt.objects.all())
    assert "Nothing was stopped or started." in text
    assert "being restarted already" in text


def test_launch(ada: Client, bob: Client, job: Job) -> None:
    page = reverse("job-launch", args=[job.pk])
    text = both(ada, bob, page, TYPED | {"now": "replace"}, rows=RestartAttempt.objects.all())
    assert "Nothing was stopped." in text


def test_run_again(ada: Client, bob: Client, job: Job, now: datetime) -> None:
    Run.objects.update(state=RunState.FINISHED, ended_at=now, outcome=OUTCOME)
    page, action = reverse("job", args=[job.pk]), reverse("job-run-again", args=[job.pk])
    text = both(ada, bob, page, {}, action, RestartAttempt.objects.all())
    assert "being restarted already" in text


def test_stop(ada: Client, bob: Client, job: Job) -> None:
    page = reverse("job-stop", args=[job.pk])
    text = both(ada, bob, page, {}, rows=Savepoint.objects.filter(stops_job=True))
    assert "already under way" in text


def test_cancel(ada: Client, bob: Client, job: Job, engine: HTTPServer) -> None:
    page = reverse("job-cancel", args=[job.pk])
    text = both(ada, bob, page, {"reason": "wrong output"}, rows=AuditEntry.objects.filter(action="job.cancel"))
    assert "Nothing was canceled. ada canceled run 1" in text
    assert len(engine.log) == 1


def test_cancel_that_had_no_effect_can_be_repeated(ada: Client, bob: Client, job: Job, engine: HTTPServer) -> None:
    page = reverse("job-cancel", args=[job.pk])
    answer_of(ada, page, {"reason": "wrong output"} | shown(ada, page))
    Run.objects.update(observed_at=AuditEntry.objects.latest("at").at + timedelta(seconds=2))  # polled: still RUNNING
    answer_of(bob, page, {"reason": "wrong output"} | shown(bob, page))
    assert len(engine.log) == 2


def test_stop_of_several_jobs(ada: Client, bob: Client, job: Job) -> None:
    address, typed = reverse("fleet-act"), {"jobs": [job.pk], "deed": "stop"}
    questions = [client.post(address, typed).content.decode() for client in (ada, bob)]
    for client, question in zip((ada, bob), questions, strict=True):
        text = answer_of(client, address, typed | {"confirmed": "on"} | dict(_HIDDEN.findall(question)))
        assert Savepoint.objects.filter(stops_job=True).count() == 1
    assert "already under way" in text
    assert "0 of 1" in text


def test_plan_a_window(ada: Client, bob: Client, job: Job) -> None:
    typed = {"scope": "job", "job": job.name, "lasts": "2 h", "reason": "the disks are swapped"}
    page = reverse("maintenance")
    text = both(ada, bob, page, typed, rows=MaintenanceWindow.objects.all())
    assert "ada has planned a window with this scope since this page was loaded" in text
    assert 'value="the disks are swapped"' in text
    answer_of(bob, page, typed | shown(bob, page))  # the window is wanted although there is one
    assert MaintenanceWindow.objects.count() == 2


def test_plan_windows_of_different_jobs_and_times(ada: Client, bob: Client, job: Job) -> None:
    make.make_job(job.cluster, "other")
    page = reverse("maintenance")
    hidden = shown(bob, page)
    typed = {"lasts": "2 h", "reason": "x"}
    answer_of(ada, page, typed | {"scope": "job", "job": job.name} | shown(ada, page))
    answer_of(bob, page, typed | {"scope": "job", "job": "other"} | hidden)
    answer_of(bob, page, typed | {"scope": "cluster", "cluster": job.cluster_id} | hidden)
    assert MaintenanceWindow.objects.count() == 3


def test_pause_the_automation(ada: Client, bob: Client, job: Job) -> None:
    page, typed = reverse("automation"), {"cluster": "", "lasts": "2 h", "reason": "upgrade"}
    text = both(ada, bob, page, typed, rows=AutomationPause.objects.all())
    assert "ada has already paused this automation since this page was loaded. Reason: “upgrade”." in text
    answer_of(bob, page, typed | {"cluster": job.cluster_id} | shown(ada, page))
    assert AutomationPause.objects.count() == 2


def test_snooze(ada: Client, bob: Client, job: Job, now: datetime) -> None:
    incident = make.make_incident(make.make_rule(job), now)
    page, action = reverse("incident", args=[incident.pk]), reverse("incident-snooze", args=[incident.pk])
    hidden = shown(bob, page)
    answer_of(ada, action, {"preset": "2h"} | shown(ada, page))
    until = Incident.objects.get(pk=incident.pk).snoozed_until
    text = answer_of(bob, action, {"preset": "30m"} | hidden)
    assert "Nothing was changed. The incident has been snoozed since this page was loaded:" in text
    assert Incident.objects.get(pk=incident.pk).snoozed_until == until
    answer_of(bob, action, {"preset": "30m"} | shown(bob, page))
    assert Incident.objects.get(pk=incident.pk).snoozed_until != until


def test_snooze_of_several(ada: Client, bob: Client, job: Job, now: datetime) -> None:
    first = make.make_incident(make.make_rule(job), now)
    second = make.make_incident(make.make_rule(make.make_job(job.cluster, "other")), now)
    page, action = reverse("incidents"), reverse("incidents-snooze")
    found = re.findall(r'form="bulk" name="shown_newest" value="(\d+)"', bob.get(page).content.decode())
    answer_of(ada, action, {"preset": "2h", "incident": [first.pk]})
    until = Incident.objects.get(pk=first.pk).snoozed_until
    typed = {"preset": "30m", "incident": [first.pk, second.pk], "shown_newest": found[0]}
    text = answer_of(bob, action, typed)
    assert "1 incident snoozed. 1 incident had already changed." in text
    assert Incident.objects.get(pk=first.pk).snoozed_until == until


# Actions that a row allows only once, so that their forms need no hidden field. A case has the address, the input, what
# the second person reads, and the rows that show how often it was done.
Case = tuple[str, dict[str, Any], str, QuerySet[Any]]
Once = Callable[[Job, datetime], Case]


def _savepoint_now(job: Job, now: datetime) -> Case:
    requested = Savepoint.objects.filter(state=SavepointState.REQUESTED)
    return reverse("job-savepoint", args=[job.pk]), {}, "already under way", requested


def _savepoint_of_several(job: Job, now: datetime) -> Case:
    requested = Savepoint.objects.filter(state=SavepointState.REQUESTED)
    return reverse("fleet-act"), {"jobs": [job.pk], "deed": "savepoint"}, "already under way", requested


def _cancel_restart(job: Job, now: datetime) -> Case:
    attempt = make.make_attempt(job, now, AttemptState.DECIDED)
    canceled = RestartAttempt.objects.filter(state=AttemptState.CANCELED)
    return reverse("restart-cancel", args=[attempt.pk]), {}, "can no longer be canceled", canceled


def _dispose(job: Job, now: datetime) -> Case:
    savepoint = job.savepoints.earliest("requested_at")
    deleted = AuditEntry.objects.filter(action="savepoint.dispose")
    return reverse("savepoint-dispose", args=[savepoint.pk]), {"note": "old"}, "Nothing was deleted.", deleted


def _acknowledge(job: Job, now: datetime) -> Case:
    incident = make.make_incident(make.make_rule(job), now)
    entries = AuditEntry.objects.filter(action="incident.acknowledge")
    return reverse("incident-acknowledge", args=[incident.pk]), {}, "acknowledged already", entries


def _resolve(job: Job, now: datetime) -> Case:
    incident = make.make_incident(make.make_rule(job), now)
    entries = AuditEntry.objects.filter(action="incident.resolve")
    return reverse("incident-resolve", args=[incident.pk]), {}, "resolved already", entries


def _reopen(job: Job, now: datetime) -> Case:
    incident = make.make_incident(make.make_rule(job), now, state=IncidentState.RESOLVED, resolved_at=now)
    entries = AuditEntry.objects.filter(action="incident.reopen")
    return reverse("incident-reopen", args=[incident.pk]), {}, "open already", entries


def _acknowledge_several(job: Job, now: datetime) -> Case:
    incident = make.make_incident(make.make_rule(job), now)
    entries = AuditEntry.objects.filter(action="incident.acknowledge")
    return reverse("incidents-acknowledge"), {"incident": [incident.pk]}, "had already changed", entries


def _resolve_several(job: Job, now: datetime) -> Case:
    incident = make.make_incident(make.make_rule(job), now)
    entries = AuditEntry.objects.filter(action="incident.resolve")
    return reverse("incidents-resolve"), {"incident": [incident.pk]}, "had already changed", entries


def _retry_message(job: Job, now: datetime) -> Case:
    incident = make.make_incident(make.make_rule(job), now)
    message = make.make_delivery(incident, make.make_channel(), now, state=DeliveryState.DEAD)
    entries = AuditEntry.objects.filter(action="delivery.retry")
    return reverse("delivery-retry", args=[message.pk]), {}, "This message is still queued", entries


def _end_window(job: Job, now: datetime) -> Case:
    window = MaintenanceWindow.objects.create(
        reason="x", job=job, starts_at=now, ends_at=now + timedelta(hours=1), created_by="olga"
    )
    entries = AuditEntry.objects.filter(action="maintenance.end")
    return reverse("maintenance-end", args=[window.pk]), {}, "is over already", entries


def _end_pause(job: Job, now: datetime) -> Case:
    pause = AutomationPause.objects.create(reason="x", author="olga", started_at=now - timedelta(minutes=1))
    entries = AuditEntry.objects.filter(action="automation.resume")
    return reverse("automation-end-pause", args=[pause.pk]), {}, "The pause has already ended.", entries


def _close_breaker(job: Job, now: datetime) -> Case:
    Job.objects.update(breaker_opened_at=now)
    entries = AuditEntry.objects.filter(action="restart.breaker-close")
    return reverse("job-close-breaker", args=[job.pk]), {}, "The breaker is already closed.", entries


def _delete_rule(job: Job, now: datetime) -> Case:
    rule = make.make_rule(job)
    entries = AuditEntry.objects.filter(action="rule.remove")
    return reverse("rule-remove", args=[rule.pk]), {}, "the object that it showed was deleted", entries


def _delete_channel(job: Job, now: datetime) -> Case:
    channel = make.make_channel()
    entries = AuditEntry.objects.filter(action="channel.remove")
    return reverse("channel-remove", args=[channel.pk]), {}, "the object that it showed was deleted", entries


def _new_rule(job: Job, now: datetime) -> Case:
    address = f"{reverse('rule-new', args=['failed_in_window'])}?job={job.pk}"
    typed = {"threshold": "3", "window_s": "15 min", "severity": "warning", "enabled": "on", "check_every_s": "30 s"}
    typed |= {"open_hold_s": "0 s", "close_hold_s": "5 min", "flap_opens": "0", "flap_window_s": "1 h"}
    return address, typed, "The job already has a rule of this type and severity.", AlertRule.objects.all()


def _new_channel(job: Job, now: datetime) -> Case:
    typed = {"name": "on-call", "to": "ops@example.org", "language": "en", "enabled": "on"}
    typed |= {"group_wait_s": "30", "messages_per_10_min": "20"}
    return reverse("channel-add", args=["mail"]), typed, "Another channel has this name.", Channel.objects.all()


def _stop_monitoring(job: Job, now: datetime) -> Case:
    entries = AuditEntry.objects.filter(action="cluster.pause")
    typed = {"watched": "no", "reason": "rebuilt"}
    return reverse("cluster-watch", args=[job.cluster_id]), typed, "is already stopped.", entries


def _resume_monitoring(job: Job, now: datetime) -> Case:
    Cluster.objects.update(enabled=False)
    entries = AuditEntry.objects.filter(action="cluster.resume")
    return reverse("cluster-watch", args=[job.cluster_id]), {"watched": "yes"}, "Waymark already monitors", entries


def _remove_cluster(job: Job, now: datetime) -> Case:
    entries = AuditEntry.objects.filter(action="cluster.archive")
    return reverse("cluster-remove", args=[job.cluster_id]), {"reason": "gone"}, "is already removed.", entries


def _confirm_identity(job: Job, now: datetime) -> Case:
    was, found = (Identity("zookeeper", {"path": "/flink", "cluster-id": name}) for name in ("/a", "/b"))
    Cluster.objects.update(identity=was.as_row(), stranger=found.as_row())
    entries = AuditEntry.objects.filter(action="cluster.same")
    return reverse("cluster-same", args=[job.cluster_id]), {}, "is already confirmed.", entries


def _new_user(job: Job, now: datetime) -> Case:
    typed = {"username": "victor", "password": PASSWORD, "role": "viewer", "email": ""}
    return reverse("users"), typed, "An account with this name already exists.", User.objects.filter(username="victor")


def _deactivate_user(job: Job, now: datetime) -> Case:
    user = User.objects.create_user("victor")
    entries = AuditEntry.objects.filter(action="user.deactivate")
    return reverse("user-activate", args=[user.pk]), {"active": "no"}, "victor is already inactive.", entries


def _activate_user(job: Job, now: datetime) -> Case:
    user = User.objects.create_user("victor", is_active=False)
    entries = AuditEntry.objects.filter(action="user.activate")
    return reverse("user-activate", args=[user.pk]), {"active": "yes"}, "victor is already active.", entries


def _delete_user(job: Job, now: datetime) -> Case:
    user = User.objects.create_user("victor")
    entries = AuditEntry.objects.filter(action="user.delete")
    return reverse("user-delete", args=[user.pk]), {}, "the object that it showed was deleted", entries


def _grant(job: Job, now: datetime) -> Case:
    user = User.objects.create_user("victor")
    typed = {"role": "operator", "selector": "team=payments"}
    text = "The account already has a grant with this scope. Revoke it first."
    return reverse("user-grant", args=[user.pk]), typed, text, Grant.objects.all()


def _revoke_grant(job: Job, now: datetime) -> Case:
    user = User.objects.create_user("victor")
    grant = Grant.objects.create(user=user, role="viewer", selector="a=b", created_at=now, created_by="olga")
    entries = AuditEntry.objects.filter(action="user.ungrant")
    return reverse("grant-take", args=[grant.pk]), {}, "the object that it showed was deleted", entries


def _revoke_token(job: Job, now: datetime) -> Case:
    token = tokens.make(User.objects.create_user("victor"), "pipeline", False, None, "victor", now).token
    entries = AuditEntry.objects.filter(action="token.revoke")
    return reverse("user-token-revoke", args=[token.pk]), {}, "Token pipeline was already revoked.", entries


ONCE: tuple[Once, ...] = (
    *(_savepoint_now, _savepoint_of_several, _cancel_restart, _dispose, _acknowledge, _resolve, _reopen),
    *(_acknowledge_several, _resolve_several, _retry_message, _end_window, _end_pause, _close_breaker),
    *(_delete_rule, _delete_channel, _new_rule, _new_channel, _stop_monitoring, _resume_monitoring),
    *(_remove_cluster, _confirm_identity),
    *(_new_user, _deactivate_user, _activate_user, _delete_user, _grant, _revoke_grant, _revoke_token),
)


@pytest.mark.parametrize("action", ONCE, ids=lambda action: action.__name__.strip("_"))
def test_second_request_changes_nothing_and_is_explained(
    ada: Client, bob: Client, job: Job, now: datetime, action: Once
) -> None:
    address, typed, text, rows = action(job, now)
    assert text not in answer_of(ada, address, typed)
    assert rows.count() == 1
    assert text in answer_of(bob, address, typed)
    assert rows.count() == 1


def test_set_a_password(ada: Client, bob: Client) -> None:
    user = User.objects.create_user("victor")
    page, action = (reverse(name, args=[user.pk]) for name in ("user", "user-password"))
    hidden = shown(bob, page)
    answer_of(ada, action, {"password": PASSWORD} | shown(ada, page))
    text = answer_of(bob, action, {"password": "another long one"} | hidden)
    assert "ada set another password" in text
    assert User.objects.get(pk=user.pk).check_password(PASSWORD)
    answer_of(bob, action, {"password": "another long one"} | shown(bob, page))
    assert User.objects.get(pk=user.pk).check_password("another long one")


def test_end_all_sessions(ada: Client, bob: Client, now: datetime) -> None:
    user = User.objects.create_user("victor")
    page, action = (reverse(name, args=[user.pk]) for name in ("user", "user-log-out"))
    hidden = shown(bob, page)
    answer_of(ada, action, shown(ada, page))
    token = tokens.make(user, "pipeline", False, None, "victor", now).token
    text = answer_of(bob, action, hidden)
    assert "Nothing was changed. ada ended all sessions" in text
    assert ApiToken.objects.get(pk=token.pk).revoked_at is None
    answer_of(bob, action, shown(bob, page))
    assert ApiToken.objects.get(pk=token.pk).revoked_at is not None


def test_create_a_token_in_two_tabs(ada: Client) -> None:
    user = User.objects.get()
    user.set_password(PASSWORD)
    user.save()
    ada.force_login(user)
    typed = {"name": "pipeline", "may": "read", "lasts": "30", "password": PASSWORD}
    assert "You already have a token" not in answer_of(ada, reverse("tokens"), typed)
    assert "You already have a token with this name." in answer_of(ada, reverse("tokens"), typed)
    assert ApiToken.objects.count() == 1


def test_change_the_own_password_in_two_tabs(ada: Client) -> None:
    user = User.objects.get()
    user.set_password("the first of them")
    user.save()
    ada.force_login(user)
    typed = {"old_password": "the first of them", "new_password1": PASSWORD, "new_password2": PASSWORD}
    assert "Password changed." in answer_of(ada, reverse("me-password"), typed)
    assert "This is not your password." in answer_of(ada, reverse("me-password"), typed)
    assert AuditEntry.objects.filter(action="user.password").count() == 1


def test_notes_of_both_people_are_kept(ada: Client, bob: Client, job: Job, now: datetime) -> None:
    incident = make.make_incident(make.make_rule(job), now)
    address = reverse("incident-note", args=[incident.pk])
    for client, note in ((ada, "the disk is full"), (bob, "I ordered a disk")):
        assert "Note added." in answer_of(client, address, {"note": note})
    assert IncidentEvent.objects.filter(incident=incident, kind="note").count() == 2
