"""A new type of rules is one class with its reason codes: its findings are stored, rendered and returned."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils.translation import trans_real

from monitoring.alerts.evaluation import evaluate_due
from monitoring.alerts.kinds import kinds
from monitoring.alerts.kinds.base import Finding, Kind, Number, Source, Terms, Unit
from monitoring.alerts.rule_facts import Facts
from monitoring.models import Channel, Delivery, Incident, IncidentState, Job, Notification
from monitoring.notify.due_notifications import gather_due
from monitoring.notify.message import message_of
from monitoring.notify.webhook.transport import payload
from monitoring.notify.wording.texts import text_of
from monitoring.reasons.reason import Reason, ReasonCode
from tests.dashboard import builders as make
from tests.dashboard.api.conftest import Caller


class FailedRunsReason(ReasonCode):
    RULE = "test.failed-runs-rule", "Opens when the last of {threshold} runs failed."
    FOUND = "test.failed-runs", "Run {run} of {subject} failed at {at:minute}."
    NONE = "test.no-failed-runs", "{subject} has no failed run."


class FailedRuns(Kind):
    name = "failed_runs"
    title = "Failed runs"
    group = "Job"
    source = Source.RUNS
    threshold = Number("Threshold", Unit.COUNT, 2, 1, 1000)

    def explain(self, terms: Terms) -> Reason:
        return FailedRunsReason.RULE(threshold=terms.threshold)

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        return (run.ended_at for run in facts.runs if run.ended_at and since < run.ended_at <= until)

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        run = facts.run(at)
        return run.number if run and run.failed else 0

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        run = facts.run(at)
        if run is None or not run.failed:
            return Finding(FailedRunsReason.NONE(subject=subject), {})
        return Finding(FailedRunsReason.FOUND(run=run.number, subject=subject, at=run.ended_at), {"run": run.number})


CHINESE = {
    "Failed runs": "失败的运行",
    FailedRunsReason.RULE.text: "前 {threshold} 次运行中最后一次失败时触发。",
    FailedRunsReason.FOUND.text: "{subject} 的第 {run} 次运行于 {at:minute} 失败。",
}


@pytest.fixture(autouse=True)
def _kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the type and its Chinese texts, as a module and the catalogue would."""
    monkeypatch.setitem(kinds(), FailedRuns.name, FailedRuns())
    catalog = trans_real.translation("zh-hans")._catalog._catalogs[0]
    for english, chinese in CHINESE.items():
        monkeypatch.setitem(catalog, english, chinese)


@pytest.fixture
def incident(db: None, job: Job, now: datetime) -> Incident:
    """Return the rule's incident for a job whose second run failed a minute ago."""
    make.make_rule(job, kind="failed_runs", threshold=2, window_s=None)
    make.make_run(job, now, state="FAILED", ended_at=now - timedelta(minutes=1))
    evaluate_due(now)
    return Incident.objects.get(kind="failed_runs", state=IncidentState.OPEN)


def test_finding_is_stored_as_code_and_arguments(incident: Incident, now: datetime) -> None:
    ended_at = now - timedelta(minutes=1)
    found = FailedRunsReason.FOUND(run=2, subject=incident.subject, at=ended_at)
    assert incident.sentence_value == found
    assert incident.sentence == f"Run 2 of {incident.subject} failed at {ended_at:%Y-%m-%d %H:%M} UTC."
    assert incident.events.get().text_value == found


def test_pages_show_finding_and_rule_in_the_language_of_the_reader(operator: Any, incident: Incident) -> None:
    english = operator.get(reverse("incident", args=[incident.pk])).content.decode()
    assert "Run 2 failed at" in english
    operator.cookies["django_language"] = "zh-hans"
    assert "的第 2 次运行于" in operator.get(reverse("incident", args=[incident.pk])).content.decode()
    assert "前 2 次运行中最后一次失败时触发。" in operator.get(reverse("rules")).content.decode()


def test_the_api_serves_text_and_value(api: Caller, incident: Incident) -> None:
    served = api.get(f"/incidents/{incident.pk}").json()
    assert served["sentence"] == incident.sentence
    assert served["sentence_value"] == incident.sentence_value.as_json()
    assert served["events"][0]["text_value"]["code"] == "test.failed-runs"
    (rule,) = api.get("/rules", kind="failed_runs").json()["items"]
    assert rule["sentence_value"] == {"code": "test.failed-runs-rule", "args": {"threshold": 2}}


def test_mails_and_webhooks_contain_the_finding(job: Job, now: datetime) -> None:
    channel = make.make_channel()
    make.make_rule(job, kind="failed_runs", threshold=2, window_s=None).channels.add(channel)
    make.make_run(job, now, state="FAILED", ended_at=now - timedelta(minutes=1))
    evaluate_due(now)
    Notification.objects.exclude(event__incident__kind="failed_runs").delete()
    gather_due(now + timedelta(minutes=1))
    message = message_of(Delivery.objects.get(notifications__event__incident__kind="failed_runs"))
    mail = text_of(Channel(name="c", kind="mail", language="zh-hans"), message)
    assert "的第 2 次运行于" in mail.body
    assert "失败的运行" in mail.body
    assert payload(message)["sentence_value"]["code"] == "test.failed-runs"
