"""The API carries out the actions of the pages, once for each idempotency key, and audits them."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from monitoring.models import (
    AlertRule,
    AuditEntry,
    AutomationPause,
    Channel,
    Cluster,
    Incident,
    Job,
    MaintenanceWindow,
    Savepoint,
)
from tests.dashboard import builders as make
from tests.dashboard.api.conftest import Caller


def last() -> AuditEntry:
    return AuditEntry.objects.exclude(action="token.make").order_by("-id")[0]


def test_savepoint_request_names_user_and_token(api: Caller, job: Job) -> None:
    answer = api.post(f"/jobs/{job.pk}/savepoints")
    assert answer.status_code == 202
    assert answer.json()["state"] == "requested"
    assert (last().action, last().actor) == ("savepoint.request", "olga (token token 0)")


def test_action_that_is_not_possible_returns_conflict_with_its_reason(api: Caller, job: Job) -> None:
    api.post(f"/jobs/{job.pk}/savepoints")
    again = api.post(f"/jobs/{job.pk}/stop")
    assert again.status_code == 409
    assert "already under way" in again.json()["error"]["message"]
    assert Savepoint.objects.count() == 1


def test_repeated_key_acts_once_and_repeats_the_response(api: Caller, job: Job) -> None:
    first, second = (api.post(f"/jobs/{job.pk}/savepoints", **{"Idempotency-Key": "k1"}) for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json() == second.json()
    assert second.headers["Idempotency-Replayed"] == "true"
    assert Savepoint.objects.count() == 1


def test_key_of_another_request_is_refused(api: Caller, job: Job) -> None:
    api.post(f"/jobs/{job.pk}/savepoints", **{"Idempotency-Key": "k1"})
    other = api.post("/pauses", {"reason": "x"}, **{"Idempotency-Key": "k1"})
    assert (other.status_code, AutomationPause.objects.count()) == (409, 0)
    assert api.post("/pauses", {"reason": "x"}, **{"Idempotency-Key": "k" * 201}).status_code == 400


def test_refused_request_can_be_repeated_with_its_key(api: Caller, job: Job) -> None:
    Cluster.objects.update(unreachable_since=job.created_at)
    assert api.post(f"/jobs/{job.pk}/savepoints", **{"Idempotency-Key": "k1"}).status_code == 409
    Cluster.objects.update(unreachable_since=None)
    assert api.post(f"/jobs/{job.pk}/savepoints", **{"Idempotency-Key": "k1"}).status_code == 202


@pytest.mark.django_db(transaction=True)
def test_concurrent_requests_with_one_key_act_once(api: Caller) -> None:
    answers: list[Any] = []

    def call() -> None:
        try:
            answers.append(api.post("/pauses", {"reason": "x"}, **{"Idempotency-Key": "k1"}))
        finally:
            connection.close()

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [answer.status_code for answer in answers] == [201] * 4
    assert AutomationPause.objects.count() == 1


def test_only_the_sent_fields_of_the_automation_change(api: Caller, job: Job) -> None:
    sent = {"savepoint_schedule": "2 h", "labels": {"team": "payments"}, "oldest_state_s": 7200}
    answer = api.send("patch", f"/jobs/{job.pk}/automation", sent)
    assert answer.status_code == 200, answer.content
    job.refresh_from_db()
    assert (job.savepoint_interval_s, job.labels, job.oldest_state_s) == (7200, {"team": "payments"}, 7200)
    assert job.auto_restart  # unchanged, because the request does not name it
    assert last().details["now"]["labels"] == {"team": "payments"}
    assert api.send("patch", f"/jobs/{job.pk}/automation", {"savepoint_schedule": "never ever at"}).status_code == 422


def test_retention_is_previewed_and_changed(api: Caller, job: Job, now: datetime) -> None:
    for hour in range(4):
        make.make_savepoint(job.current_run, now - timedelta(hours=hour))
    assert api.send("patch", f"/jobs/{job.pk}/retention", {"savepoints_kept": 2}).json()["savepoints_kept"] == 2
    assert [row["goes"] for row in api.get(f"/jobs/{job.pk}/retention").json()] == [False, False, True, True]


def test_a_savepoint_is_pinned_and_cannot_be_disposed_of(api: Caller, job: Job, now: datetime) -> None:
    old = make.make_savepoint(job.current_run, now - timedelta(hours=2))
    make.make_savepoint(job.current_run, now)
    kept = api.send("patch", f"/savepoints/{old.pk}", {"pinned": True, "note": "before the change"}).json()
    assert (kept["pinned"], kept["note"]) == (True, "before the change")
    assert api.send("patch", f"/savepoints/{old.pk}", {"note": "other"}).json()["pinned"]
    assert api.post(f"/savepoints/{old.pk}/dispose").status_code == 409
    api.send("patch", f"/savepoints/{old.pk}", {"pinned": False})
    assert api.post(f"/savepoints/{old.pk}/dispose", {"reason": "done"}).json()["state"] == "disposing"
    assert last().reason == "done"


def test_a_rule_is_created_changed_and_deleted(api: Caller, job: Job) -> None:
    sent = {"kind": "failed_in_window", "job_id": job.pk, "threshold": 5, "window_s": "30 min", "severity": "critical"}
    made = api.post("/rules", sent)
    assert made.status_code == 201, made.content
    rule = AlertRule.objects.get(pk=made.json()["id"])
    assert (rule.threshold, rule.window_s, rule.severity, rule.job) == (5, 1800, "critical", job)
    assert api.send("patch", f"/rules/{rule.pk}", {"threshold": 7}).json()["window_s"] == 1800
    assert last().details["before"]["threshold"] == "5"
    assert api.send("delete", f"/rules/{rule.pk}").status_code == 204
    assert api.get(f"/rules/{rule.pk}").status_code == 404


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"kind": "nothing"}, "kind"),
        ({"kind": "failed_in_window", "name": "a", "threshold": 0}, "threshold"),
        ({"kind": "failed_in_window", "name": "a", "selector": "=="}, "selector"),
        ({"kind": "failed_in_window", "name": "a", "channels": [99]}, "channels"),
        ({"kind": "failed_in_window", "name": "a", "parameters": {"colour": "red"}}, "colour"),
    ],
)
def test_invalid_rule_names_its_field(api: Caller, sent: dict[str, Any], field: str) -> None:
    before = AlertRule.objects.count()
    answer = api.post("/rules", sent)
    assert answer.status_code == 422
    assert field in [wrong["field"] for wrong in answer.json()["error"]["fields"]]
    assert AlertRule.objects.count() == before


def test_incident_is_acknowledged_snoozed_and_resolved(api: Caller, job: Job, now: datetime) -> None:
    incident = make.make_incident(make.make_rule(job), now)
    assert (
        api.post(f"/incidents/{incident.pk}/acknowledge", {"note": "on it"})
        .json()["acknowledged_by"]
        .startswith("olga")
    )
    assert api.post(f"/incidents/{incident.pk}/snooze", {"snooze_for": "2 h"}).json()["state"] == "snoozed"
    assert api.post(f"/incidents/{incident.pk}/snooze", {"snooze_for": 5}).status_code == 422
    assert api.post(f"/incidents/{incident.pk}/resolve").json()["state"] == "resolved"
    assert api.post(f"/incidents/{incident.pk}/resolve").status_code == 409
    assert Incident.objects.get().resolved_by == "olga (token token 0)"


def test_an_incident_gets_a_note_and_is_reopened(api: Caller, job: Job, now: datetime) -> None:
    incident = make.make_incident(make.make_rule(job), now)
    noted = api.post(f"/incidents/{incident.pk}/note", {"note": "the disk is full"}).json()
    assert [(event["kind"], event["text"]) for event in noted["events"]][1:] == [
        ("note", "olga (token token 0): the disk is full")
    ]
    assert api.post(f"/incidents/{incident.pk}/note").status_code == 422
    refused = api.post(f"/incidents/{incident.pk}/reopen")
    assert refused.status_code == 409
    api.post(f"/incidents/{incident.pk}/resolve")
    assert api.post(f"/incidents/{incident.pk}/reopen", {"note": "too early"}).json()["state"] == "open"
    assert Incident.objects.get().resolved_at is None


def test_an_incident_is_assigned(api: Caller, job: Job, now: datetime) -> None:
    incident = make.make_incident(make.make_rule(job), now)
    path = f"/incidents/{incident.pk}/assign"
    assert api.post(path, {"assignee": "olga", "note": "on it"}).json()["assigned_to"] == "olga"
    assert [each["id"] for each in api.get("/incidents", assignee="olga").json()["items"]] == [incident.pk]
    assert api.get("/incidents", assignee="ada").json()["items"] == []
    assert api.post(path, {"assignee": "nobody-known"}).status_code == 422
    assert api.post(path, {}).status_code == 422
    late = api.post(path, {"assignee": "", "was": "ada"})
    assert late.status_code == 409
    assert late.json()["error"]["reason"]["code"] == "alerts.already-assigned"
    assert api.post(path, {"assignee": ""}).json()["assigned_to"] == ""
    assert last().actor == "olga (token token 0)"


def test_a_runbook_is_created_changed_and_deleted(api: Caller, job: Job) -> None:
    made = api.post("/runbooks", {"selector": "team=payments", "text": "Call ada."})
    assert made.status_code == 201
    path = f"/runbooks/{made.json()['id']}"
    assert api.send("patch", path, {"text": "Call bob."}).json()["text"] == "Call bob."
    assert api.get(path).json() == made.json() | {"text": "Call bob."}
    assert api.get("/runbooks").json()["items"] == [api.get(path).json()]
    assert api.post("/runbooks", {"selector": "team=payments", "text": "x"}).status_code == 422
    assert api.send("delete", path).status_code == 204
    assert api.get(path).status_code == 404
    rule = api.post("/rules", {"kind": "failed_in_window", "job_id": job.pk, "runbook": "https://wiki.example.org/"})
    assert rule.json()["runbook"] == "https://wiki.example.org/"


def test_a_window_is_planned_and_ended(api: Caller, job: Job) -> None:
    made = api.post("/maintenance", {"job": job.name, "lasts": 600, "reason": "disk"})
    assert made.status_code == 201, made.content
    assert MaintenanceWindow.objects.get().job == job
    assert api.post(f"/maintenance/{made.json()['id']}/end").status_code == 200
    assert api.post(f"/maintenance/{made.json()['id']}/end").status_code == 409


def test_channel_secret_is_write_only(api: Caller) -> None:
    sent = {"kind": "webhook", "name": "hook", "url": "https://hooks.example.org/t0ken", "signing_secret": "s3cret"}
    made = api.post("/channels", sent)
    assert made.status_code == 201, made.content
    assert (made.json()["has_secret"], "t0ken" in str(made.json()), "s3cret" in str(made.json())) == (
        True,
        False,
        False,
    )
    changed = api.send("patch", f"/channels/{made.json()['id']}", {"enabled": False}).json()
    assert (changed["enabled"], changed["has_secret"]) == (False, True)
    assert Channel.objects.get(name="hook").settings["url"].endswith("/t0ken")
    refused = api.send("patch", f"/channels/{made.json()['id']}", {"allow_private": True})
    assert refused.json()["error"]["fields"][0]["message"] == "Your account may not change this field."


def test_only_administrators_change_clusters(api: Caller, admin_api: Caller, now: datetime) -> None:
    cluster = make.make_cluster(now)
    path = f"/clusters/{cluster.pk}"
    assert api.post(f"{path}/watch", {"watched": False, "reason": "x"}).status_code == 403
    assert admin_api.post(f"{path}/watch", {"watched": False}).status_code == 422
    assert admin_api.post(f"{path}/watch", {"watched": False, "reason": "rebuilt"}).json()["state"] == "not watched"
    refused = admin_api.send("patch", path, {"poll_interval_s": 0, "token": "s3cret", "authentication": "bearer"})
    assert "s3cret" not in refused.content.decode()
    assert "poll_interval_s" in [wrong["field"] for wrong in refused.json()["error"]["fields"]]
    assert admin_api.post(f"{path}/remove", {"reason": "gone"}).status_code == 204


def test_a_restart_needs_one_of_the_offered_snapshots(api: Caller, job: Job, now: datetime) -> None:
    savepoint = make.make_savepoint(job.current_run, now)
    keys = [state["key"] for state in api.get(f"/jobs/{job.pk}/restart-states").json()]
    assert keys[0] == "stop"
    assert f"savepoint-{savepoint.pk}" in keys
    refused = api.post(f"/jobs/{job.pk}/restart", {"state": "stop", "stop": "cancel"})
    assert refused.status_code == 409
    assert "exists only if the job is stopped with a savepoint" in refused.content.decode()
    assert api.post(f"/jobs/{job.pk}/restart", {"state": "savepoint-0"}).status_code == 422
    started = api.post(f"/jobs/{job.pk}/restart", {"state": f"savepoint-{savepoint.pk}"})
    assert started.status_code == 202, started.content
    assert api.post(f"/jobs/{job.pk}/restart", {"state": f"savepoint-{savepoint.pk}"}).status_code == 409
    assert api.post(f"/restarts/{started.json()['id']}/cancel").json()["state"] == "canceled"


def test_an_operator_may_rescale_and_not_change_the_program(api: Caller, job: Job) -> None:
    assert api.post(f"/jobs/{job.pk}/launch", {"parallelism": 9}).json()["version"] is not None
    job.refresh_from_db()
    assert job.launch["parallelism"] == 9
    assert api.post(f"/jobs/{job.pk}/launch", {"jar_id": "evil.jar"}).status_code == 422
