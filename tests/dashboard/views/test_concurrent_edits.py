"""Two people edit the same values: the second is refused with the changes of the first, and keeps the input."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse

from dashboard.access import accounts
from dashboard.api.typed import filled
from dashboard.forms.automation import AutomationForm
from monitoring.engine import examination
from monitoring.models import Account, AlertRule, Channel, ChannelKind, Cluster, Discovery, Job, Runbook
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db

_HIDDEN = re.compile(r'name="shown_values" value="([^"]*)"')


@dataclass(frozen=True)
class Edit:
    """One form with the input of two people. `change` describes the input of the first to the second."""

    page: str
    action: str
    first: Mapping[str, Any]
    second: Mapping[str, Any]
    change: str
    row: Any
    values: Callable[[Any], tuple[object, object]]  # the values that the first and the second person change

    def stored(self) -> tuple[object, object]:
        return self.values(type(self.row).objects.get(pk=self.row.pk))


def edit_of(name: str, now: datetime) -> Edit:
    cluster = make.make_cluster(now)
    Cluster.objects.update(rest_url="http://127.0.0.1:1")  # no server answers there
    job = make.make_job(cluster)
    run = make.make_run(job, now)
    match name:
        case "user":
            user = User.objects.create_user("victor", "victor@example.org")
            address = reverse("user", args=[user.pk])
            typed: tuple[dict[str, Any], dict[str, Any]] = {"role": "operator"}, {"email": "v@example.org"}
            change = "Role is now operator: can also act on everything."
            return Edit(address, address, *typed, change, user, lambda u: (accounts.role_name(u), u.email))
        case "rule":
            rule = make.make_rule(job)
            address = reverse("rule", args=[rule.pk])
            typed = {"threshold": 5}, {"window_s": "20 min"}
            return Edit(address, address, *typed, "Threshold is now 5.", rule, lambda r: (r.threshold, r.window_s))
        case "channel":
            channel = make.make_channel()
            address = reverse("channel", args=[channel.pk])
            typed = {"group_wait_s": 120}, {"messages_per_10_min": 7}
            change = "Collect for (seconds) is now 120."
            return Edit(address, address, *typed, change, channel, lambda r: (r.group_wait_s, r.messages_per_10_min))
        case "automation":
            page, action = (reverse(each, args=[job.pk]) for each in ("job-configuration", "job-automation"))
            typed = {"max_restarts_per_hour": 7}, {"max_restarts_per_day": 11}
            change = "Max. restarts per hour is now 7."
            return Edit(page, action, *typed, change, job, lambda r: (r.max_restarts_per_hour, r.max_restarts_per_day))
        case "retention":
            page, action = (reverse(each, args=[job.pk]) for each in ("job-retention", "job-change-retention"))
            typed = {"savepoints_kept": 5}, {"savepoints_kept_s": "7 d"}
            change = "Newest savepoints to keep is now 5."
            return Edit(page, action, *typed, change, job, lambda r: (r.savepoints_kept, r.savepoints_kept_s))
        case "savepoint":
            savepoint = make.make_savepoint(run, now - timedelta(minutes=5))
            page, action = (reverse(each, args=[savepoint.pk]) for each in ("savepoint", "savepoint-keep"))
            typed = {"note": "before the upgrade"}, {"pinned": True}
            return Edit(
                page, action, *typed, "Note is now before the upgrade.", savepoint, lambda r: (r.note, r.pinned)
            )
        case "cluster":
            address = reverse("cluster-edit", args=[cluster.pk])
            typed = (
                {"requests_at_once": 3, "unanswered": True},
                {"savepoint_jitter_s": 90, "unanswered": True},
            )
            change = "Max. concurrent requests is now 3."
            return Edit(address, address, *typed, change, cluster, lambda r: (r.requests_at_once, r.savepoint_jitter_s))
        case "runbook":
            runbook = Runbook.objects.create(selector="team=payments", text="Call olga.")
            address = reverse("runbook", args=[runbook.pk])
            typed = {"text": "Call ada."}, {"selector": "team=orders"}
            change = "Runbook is now Call ada."
            return Edit(address, address, *typed, change, runbook, lambda r: (r.text, r.selector))
        case "objective":
            objective = make.make_objective(job, now)
            address = reverse("objective", args=[objective.pk])
            typed = {"percent": 95}, {"days": 7}
            change = "Share (%) is now 95."
            return Edit(address, address, *typed, change, objective, lambda r: (r.percent, r.days))
        case "launch":
            address = reverse("job-launch", args=[job.pk])
            typed = {"parallelism": 8}, {"entry_class": "flights.py:by_aircraft"}
            change = "Launch record is now version 1."
            return Edit(
                address,
                address,
                *typed,
                change,
                job,
                lambda r: (r.launch["parallelism"], r.launch["entry_class"]),
            )
    raise ValueError(name)


EDITS = (
    *("rule", "channel", "automation", "retention", "savepoint", "cluster", "runbook", "objective", "launch"),
    "user",
)


@pytest.fixture(params=EDITS)
def edit(request: pytest.FixtureRequest, now: datetime) -> Edit:
    return edit_of(request.param, now)


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


def load(client: Client, edit: Edit, typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a browser sends if a person opens the page and enters `typed`."""
    page = client.get(edit.page)
    return dict(filled(page.context["form"], typed).lists()) | {"shown_values": hidden(page)}


def hidden(page: Any) -> str:
    (found,) = _HIDDEN.findall(page.content.decode())
    assert found
    return unescape(found)


def text_of(page: Any) -> str:
    return " ".join(unescape(page.content.decode()).split())


def test_second_person_is_refused_with_the_changes(ada: Client, bob: Client, edit: Edit) -> None:
    before = edit.stored()
    late = load(bob, edit, edit.second)
    assert ada.post(edit.action, load(ada, edit, edit.first)).status_code == 302
    saved = edit.stored()
    assert saved[0] != before[0]

    refused = bob.post(edit.action, late)
    assert refused.status_code == 422
    page = text_of(refused)
    assert f"The values have changed since this page was loaded: {edit.change}" in page
    assert "The last change was made by ada" in page
    assert edit.stored() == saved

    # The input is kept, and the refused page has the new values: sending it again replaces them.
    for name, value in edit.second.items():
        assert refused.context["form"][name].value() in (value, str(value), [str(value)])
    assert bob.post(edit.action, late | {"shown_values": hidden(refused)}).status_code == 302
    assert edit.stored() == (before[0], edit.stored()[1])
    assert edit.stored()[1] != before[1]


def test_page_with_the_stored_values_is_saved(bob: Client, edit: Edit) -> None:
    for _time in range(2):
        assert bob.post(edit.action, load(bob, edit, edit.second)).status_code == 302


def test_clients_without_the_field_are_not_checked(ada: Client, bob: Client, edit: Edit) -> None:
    late = load(bob, edit, edit.second)
    ada.post(edit.action, load(ada, edit, edit.first))
    del late["shown_values"]
    assert bob.post(edit.action, late).status_code == 302


@pytest.mark.parametrize("sent", ["", "x", "1", "99999999999999999999 name", "-1 name=", "1 threshold=0 threshold"])
def test_invalid_field_is_refused(bob: Client, now: datetime, sent: str) -> None:
    edit = edit_of("rule", now)
    refused = bob.post(edit.action, load(bob, edit, edit.second) | {"shown_values": sent})
    assert refused.status_code == 422
    assert "The values have changed since this page was loaded" in text_of(refused)


def test_changed_secret_is_not_shown(ada: Client, bob: Client) -> None:
    channel = make.make_channel("hooks", ChannelKind.WEBHOOK)
    address = reverse("channel", args=[channel.pk])
    edit = Edit(address, address, {"signing_secret": "s3cret"}, {}, "", channel, lambda r: (r.secret, r.name))
    Channel.objects.update(allow_private=True)
    late = load(bob, edit, {})
    assert ada.post(address, load(ada, edit, edit.first)).status_code == 302
    page = text_of(bob.post(address, late))
    assert "Signing secret has another value." in page
    assert "s3cret" not in page


def test_a_new_leader_does_not_cause_an_edit_conflict(
    bob: Client, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "LIMIT_S", 0.2)  # no ensemble answers
    cluster = make.make_cluster(now)
    place = {"discovery": Discovery.ZOOKEEPER, "zookeeper_hosts": "127.0.0.1:1", "zookeeper_root": "/flink"}
    Cluster.objects.update(**place, zookeeper_cluster_id="/default")
    address = reverse("cluster-edit", args=[cluster.pk])
    edit = Edit(address, address, {}, {"unanswered": True, "requests_at_once": 3}, "", cluster, lambda r: (r, r))
    late = load(bob, edit, edit.second)
    Cluster.objects.update(rest_url="http://other.example:8081")
    assert bob.post(address, late).status_code == 302


def test_rest_of_a_pause_is_compared_by_its_end(now: datetime) -> None:
    job = make.make_job(make.make_cluster(now), automation_paused=True, automation_note="upgrade")
    job.automation_paused_until = now + timedelta(hours=2)
    assert AutomationForm(instance=job).stored_values()["pause_lasts"] == job.automation_paused_until


def test_preview_of_a_rule_is_not_refused(ada: Client, bob: Client, now: datetime) -> None:
    edit = edit_of("rule", now)
    late = load(bob, edit, {})
    ada.post(edit.action, load(ada, edit, edit.first))
    preview = bob.get(reverse("rule-sentence", args=["failed_in_window"]), late | {"rule": edit.row.pk})
    assert "have changed" not in text_of(preview)


def test_preview_of_a_retention_says_that_the_values_changed(ada: Client, bob: Client, now: datetime) -> None:
    edit = edit_of("retention", now)
    late = load(bob, edit, edit.second)
    ada.post(edit.action, load(ada, edit, edit.first))
    preview = bob.get(edit.page, late | {"preview": "1"})
    assert "Newest savepoints to keep is now 5." in text_of(preview)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "name", ["rule", "channel", "automation", "retention", "savepoint", "runbook", "objective", "user"]
)
def test_one_of_two_requests_at_the_same_time_is_refused(ada: Client, bob: Client, now: datetime, name: str) -> None:
    edit = edit_of(name, now)
    sent = [(ada, edit.action, load(ada, edit, edit.first)), (bob, edit.action, load(bob, edit, edit.second))]
    assert sorted(send_together(sent)) == [302, 422]


def send_together(sent: Sequence[tuple[Client, str, dict[str, Any]]]) -> list[int]:
    """Send the requests at the same time, and return their status codes."""
    together = threading.Barrier(len(sent))
    codes: list[int] = []

    def send(client: Client, address: str, data: dict[str, Any]) -> None:
        together.wait()
        try:
            codes.append(client.post(address, data).status_code)
        finally:
            connection.close()

    threads = [threading.Thread(target=send, args=each) for each in sent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return codes


@pytest.mark.django_db(transaction=True)
def test_administrators_who_demote_each_other_at_the_same_time_do_not_both_succeed(ada: Client, bob: Client) -> None:
    by_name = {user.username: user for user in User.objects.all()}
    sent = [(ada, reverse("user", args=[by_name["bob"].pk])), (bob, reverse("user", args=[by_name["ada"].pk]))]
    first, second = sorted(send_together([(client, address, {"role": "viewer"}) for client, address in sent]))
    assert (first, second in (403, 422)) == (302, True)
    assert User.objects.filter(is_superuser=True).count() == 1


def test_second_tab_with_the_own_preferences_is_refused(ada: Client) -> None:
    address, user = reverse("me"), User.objects.get()
    edit = Edit(address, address, {"time_zone": "Asia/Tokyo"}, {"time_zone": "UTC"}, "", user, lambda u: (u, u))
    late = load(ada, edit, edit.second)
    assert ada.post(address, load(ada, edit, edit.first)).status_code == 302
    refused = ada.post(address, late)
    assert refused.status_code == 422
    assert "Time zone is now Asia/Tokyo." in text_of(refused)
    assert Account.objects.get().time_zone == "Asia/Tokyo"
    assert ada.post(address, late | {"shown_values": hidden(refused)}).status_code == 302
    assert Account.objects.get().time_zone == "UTC"


def test_labels_changed_for_several_jobs_are_noticed(ada: Client, bob: Client, now: datetime) -> None:
    edit = edit_of("automation", now)
    late = load(bob, edit, edit.second)
    ada.post(reverse("fleet-act"), {"jobs": [edit.row.pk], "deed": "label", "labels": "team=mail"})
    page = text_of(bob.post(edit.action, late))
    assert "Labels is now team=mail." in page
    assert Job.objects.get(pk=edit.row.pk).labels == {"team": "mail"}


def test_rule_that_was_deleted_is_not_created_again(ada: Client, bob: Client, now: datetime) -> None:
    edit = edit_of("rule", now)
    late = load(bob, edit, edit.second)
    assert ada.post(reverse("rule-remove", args=[edit.row.pk])).status_code == 302
    answer = bob.post(edit.action, late)
    assert answer.status_code == 404
    assert "the object that it showed was deleted" in text_of(answer)
    assert not AlertRule.objects.exists()
