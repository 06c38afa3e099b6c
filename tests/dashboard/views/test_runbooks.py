"""Runbooks for jobs by label, and the runbook of a rule."""

from __future__ import annotations

from datetime import datetime

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import AlertRule, AuditEntry, Runbook
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


def test_a_runbook_is_added_changed_and_deleted(operator: Client) -> None:
    values = {"selector": "team=payments", "text": "Call ada.\r\nThen bob."}
    page = operator.post(reverse("runbooks"), values, follow=True)
    assert "Runbook added." in page.content.decode()
    runbook = Runbook.objects.get()
    assert (runbook.selector, runbook.text) == ("team=payments", "Call ada.\nThen bob.")
    operator.post(reverse("runbook", args=[runbook.pk]), {"selector": "team=payments", "text": "Call bob."})
    runbook.refresh_from_db()
    assert runbook.text == "Call bob."
    remove = reverse("runbook-remove", args=[runbook.pk])
    assert "Delete the runbook for jobs with team=payments?" in operator.get(remove).content.decode()
    assert Runbook.objects.exists()
    operator.post(remove)
    assert not Runbook.objects.exists()
    actions = list(AuditEntry.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["runbook.add", "runbook.change", "runbook.remove"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"selector": "", "text": "x"}, "Enter at least one label."),
        ({"selector": "team==x", "text": "x"}, "is not a term"),
        ({"selector": "team=a", "text": ""}, "Enter a URL or a text."),
        ({"selector": "team=b", "text": "x" * 1001}, "at most 1000 characters"),
        ({"selector": "team=there", "text": "x"}, "There is a runbook for these labels already."),
    ],
)
def test_an_invalid_runbook_is_reported_at_its_field(operator: Client, values: dict[str, str], expected: str) -> None:
    Runbook.objects.create(selector="team=there", text="x")
    answer = operator.post(reverse("runbooks"), values)
    assert answer.status_code == 422
    assert expected in answer.content.decode()
    assert Runbook.objects.count() == 1


def test_a_viewer_can_read_but_not_change_runbooks(viewer: Client) -> None:
    runbook = Runbook.objects.create(selector="team=payments", text="https://wiki.example.org/payments")
    page = viewer.get(reverse("runbooks")).content.decode()
    assert 'href="https://wiki.example.org/payments"' in page
    assert "Add runbook" not in page
    for address in (reverse("runbooks"), reverse("runbook", args=[runbook.pk])):
        assert viewer.post(address, {"selector": "team=x", "text": "x"}).status_code == 403


def test_a_rule_has_a_runbook(operator: Client, now: datetime) -> None:
    rule = make.make_rule(make.make_job(make.make_cluster(now)), runbook="https://wiki.example.org/old")
    page = operator.get(reverse("rule", args=[rule.pk]))
    assert "https://wiki.example.org/old" in page.content.decode()
    form = page.context["form"]
    values = {name: form[name].value() for name in form.fields if form[name].value() is not None}
    answer = operator.post(reverse("rule", args=[rule.pk]), values | {"runbook": "Call ada."})
    assert answer.status_code == 302
    assert AlertRule.objects.get(pk=rule.pk).runbook == "Call ada."
    entry = AuditEntry.objects.get(action="rule.change")
    assert entry.details["runbook"] == "Call ada."
    assert entry.details["before"]["runbook"] == "https://wiki.example.org/old"
