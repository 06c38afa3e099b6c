"""YAML of rules and channels: an export can be imported unchanged, errors have lines, and an import is atomic."""

from __future__ import annotations

from datetime import datetime
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from dashboard.access.roles import Role
from dashboard.as_code.applying import NotApplied, apply
from dashboard.as_code.export import export
from dashboard.as_code.plan import plan
from monitoring.alerts.kinds import kinds
from monitoring.models import AlertRule, AuditEntry, Channel, Job
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db

SMALL = """\
channels:
  - name: payments
    kind: mail
    to: payments@example.org
rules:
  - name: Payments fail
    kind: failed_in_window
    labels: team=payments
    threshold: 5
    window: 30 min
    severity: critical
    channels: [payments]
"""


@pytest.fixture
def job(now: datetime) -> Job:
    return make.make_job(make.make_cluster(now), "flights")


def everything() -> list[dict[str, object]]:
    left_out = ("id", "next_check_at", "last_checked_at", "evaluated_until")
    fields = [field.name for field in AlertRule._meta.fields if field.name not in left_out]
    rules = AlertRule.objects.order_by("kind", "name", "job_id", "severity")
    return [
        {name: getattr(rule, name) for name in fields} | {"channels": sorted(str(each) for each in rule.channels.all())}
        for rule in rules
    ]


def one_of_each_kind(job: Job) -> None:
    channel = make.make_channel("on-call: “night”")
    for kind in kinds().values():
        terms = kind.fill(None, None, {})
        rule = AlertRule.objects.create(
            name=f"{kind.title} #1",
            kind=kind.name,
            threshold=terms.threshold,
            window_s=terms.window_s,
            parameters=dict(terms.parameters),
        )
        rule.channels.add(channel)
    AlertRule.objects.create(job=job, threshold=7, window_s=600, enabled=False, open_hold_s=90)
    runbook = "https://wiki.example.org/size\nThen: call ada."
    AlertRule.objects.create(
        name="by label", selector="team=a|b,!old", kind="state_size", threshold=3 * 1024**3, runbook=runbook
    )


def test_export_and_import_round_trip(job: Job, now: datetime) -> None:
    one_of_each_kind(job)
    text, before = export(Role.ADMIN), everything()

    assert plan(text, Role.ADMIN).problems == []
    assert plan(text, Role.ADMIN).changes == []
    AlertRule.objects.all().delete()
    changes = apply(text, Role.ADMIN, "olga", now)

    assert len(changes) == len(before)
    assert everything() == before
    assert export(Role.ADMIN) == text


def test_one_changed_number_is_one_changed_line(job: Job) -> None:
    one_of_each_kind(job)
    before = export(Role.ADMIN).splitlines()
    AlertRule.objects.filter(job=job).update(threshold=8)
    after = export(Role.ADMIN).splitlines()
    assert [(old, new) for old, new in zip(before, after, strict=True) if old != new] == [
        ("    threshold: 7", "    threshold: 8")
    ]


def test_import_adds_new_entries_and_reports_changes(now: datetime) -> None:
    apply(SMALL, Role.ADMIN, "olga", now)
    rule = AlertRule.objects.get(name="Payments fail")
    assert (rule.threshold, rule.window_s, rule.selector, rule.severity) == (5, 1800, "team=payments", "critical")
    assert [str(each) for each in rule.channels.all()] == ["payments"]

    (change,) = plan(SMALL.replace("threshold: 5", "threshold: 6"), Role.ADMIN).changes
    assert (change.what, change.verb, change.fields) == ("rule Payments fail", "change", {"threshold": (5, 6)})
    assert AuditEntry.objects.filter(action="code.apply").count() == 1


def test_import_without_secrets_keeps_them(now: datetime) -> None:
    channel = make.make_channel("hook", kind="webhook")
    channel.secret = "very secret"
    channel.save()
    text = export(Role.ADMIN)
    assert "very secret" not in text
    apply(text.replace("messages_per_10_min: 10", "messages_per_10_min: 20"), Role.ADMIN, "olga", now)
    channel.refresh_from_db()
    assert (channel.messages_per_10_min, channel.secret.reveal()) == (20, "very secret")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("threshold: 5", "threshold: many", "line 9: threshold is 'many': Enter a whole number from 1 to 100000."),
        ("threshold: 5", "treshold: 5", "line 9: treshold is '5': no such key: allowed are "),
        ("window: 30 min", "window: 30", "line 10: window is '30': Enter a number and a unit"),
        (
            "labels: team=payments",
            "labels: team==payments",
            "line 8: labels is 'team==payments': “team==payments”",
        ),
        ("kind: failed_in_window", "kind: failing", "line 7: kind is 'failing': allowed are alignment, "),
        ("[payments]", "[nobody]", "line 12: channels is 'nobody': allowed are payments."),
        ("kind: mail", "kind: pigeon", "line 3: kind is 'pigeon': allowed are mail, webhook, apprise."),
        ("to: payments@example.org", "to: payments", "line 4: to is 'payments': payments is not a mail address"),
        ("severity: critical", "severity: grave", "line 11: severity is 'grave': "),
        ("name: Payments fail", "name: ''", "line 6: name"),
        ("threshold: 5", "threshold: 5\n    threshold: 6", "line 10: threshold occurs twice, first in line 9."),
        ("rules:", "rulez:", "line 5: rulez is not allowed here. Allowed are clusters, discoveries, defaults, jobs,"),
        ("threshold: 5", "threshold: [5", "This is not valid YAML"),
        ("threshold: 5", "threshold: &a 5", "line 9: An anchor is not allowed here"),
        ("threshold: 5", "threshold: !!python/name:os.system 5", "line 9: A tag is not allowed here"),
        ("labels: team=payments", "cluster: x\n    job: y", "line 9: job is 'y of cluster x': there is no such job."),
        ("channels: [payments]", "channels: {a: b}", "line 12: channels is "),
    ],
)
def test_a_problem_names_line_field_value_and_what_is_allowed(now: datetime, old: str, new: str, expected: str) -> None:
    assert SMALL.count(old) == 1
    made = plan(SMALL.replace(old, new), Role.ADMIN)
    assert any(str(problem).startswith(expected) or expected in str(problem) for problem in made.problems), (
        made.problems
    )
    with pytest.raises(NotApplied):
        apply(SMALL.replace(old, new), Role.ADMIN, "olga", now)
    assert not AlertRule.objects.exists()
    assert not Channel.objects.exists()


def test_all_problems_of_a_file_are_reported_together() -> None:
    wrong = SMALL.replace("threshold: 5", "threshold: 0").replace("window: 30 min", "window: soon")
    assert [problem.line for problem in plan(wrong, Role.ADMIN).problems] == [9, 10]


def test_absent_entries_are_removed_only_with_prune(job: Job, now: datetime) -> None:
    own = AlertRule.objects.create(job=job, threshold=7, window_s=600)
    apply(SMALL, Role.ADMIN, "olga", now)
    assert AlertRule.objects.filter(pk=own.pk).exists()
    changes = apply(SMALL, Role.ADMIN, "olga", now, prune=True)
    assert [(change.verb, AlertRule.objects.filter(pk=own.pk).exists()) for change in changes] == [("remove", False)]


def test_the_command_exports_shows_and_imports(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(SMALL)

    assert "+ rule Payments fail" in run("plan", str(file))
    assert not AlertRule.objects.exists()
    run("apply", str(file))
    assert "No changes." in run("plan", str(file))
    file.write_text(run("export"))
    assert run("apply", str(file)) == "Nothing changed: the configuration is already as in the file.\n"
    file.write_text(SMALL.replace("threshold: 5", "threshold: 0"))
    with pytest.raises(
        CommandError, match=r"Nothing was changed\.\nline 9: threshold is '0': Enter a whole number from 1"
    ):
        run("apply", str(file))


def run(*arguments: str) -> str:
    result = StringIO()
    call_command("config", *arguments, stdout=result)
    return result.getvalue()


def test_the_page_shows_the_changes_before_it_applies_them(operator: Client) -> None:
    address = reverse("as-code")
    page = operator.post(address, {"text": SMALL}).content.decode()
    assert "Payments fail" in page
    assert not AlertRule.objects.exists()
    operator.post(address, {"text": SMALL, "step": "apply"})
    assert AlertRule.objects.filter(name="Payments fail").exists()
    assert "Payments fail" in operator.get(reverse("code-download")).content.decode()


def test_import_page_shows_problems_and_keeps_the_text(operator: Client) -> None:
    wrong = SMALL.replace("threshold: 5", "threshold: 0")
    response = operator.post(reverse("as-code"), {"text": wrong, "step": "apply"})
    assert response.status_code == 422
    assert response.context["text"] == wrong
    assert "<b>Line 9:</b>" in response.content.decode()


def test_only_an_administrator_allows_a_private_address(operator: Client) -> None:
    asked = SMALL.replace("    to:", "    allow_private: true\n    to:")
    page = operator.post(reverse("as-code"), {"text": asked, "step": "apply"})
    assert "only an administrator can allow this" in page.content.decode()
    assert not Channel.objects.exists()


def test_viewer_cannot_import(viewer: Client) -> None:
    assert viewer.get(reverse("as-code")).status_code == 200
    assert viewer.post(reverse("as-code"), {"text": SMALL, "step": "apply"}).status_code == 403
