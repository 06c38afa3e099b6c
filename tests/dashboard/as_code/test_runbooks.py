"""Runbooks for jobs by label are exported and imported as YAML. Those of rules are keys of the rules."""

from __future__ import annotations

from datetime import datetime

import pytest

from dashboard.access.roles import Role
from dashboard.as_code.applying import apply
from dashboard.as_code.drift import drifts
from dashboard.as_code.export import export
from dashboard.as_code.plan import plan
from monitoring.models import AlertRule, Runbook

pytestmark = pytest.mark.django_db
TEXT = """\
rules:
  - name: Payments fail
    kind: failed_in_window
    runbook: https://wiki.example.org/failed
runbooks:
  - labels: team=air
    text: https://wiki.example.org/air
  - labels: team=payments,env!=dev
    text: |-
      Stop the imports.
      Then call ada.
"""
AIR = "text: https://wiki.example.org/air"


def stored() -> dict[str, str]:
    return dict(Runbook.objects.values_list("selector", "text"))


def test_export_and_import_round_trip(now: datetime) -> None:
    assert len(apply(TEXT, Role.OPERATOR, "olga", now)) == 3
    both = {
        "team=air": "https://wiki.example.org/air",
        "team=payments,env!=dev": "Stop the imports.\nThen call ada.",
    }
    assert stored() == both
    assert AlertRule.objects.get().runbook == "https://wiki.example.org/failed"

    text = export(Role.OPERATOR)
    assert TEXT.partition("runbooks:")[2] in text
    assert "    runbook: https://wiki.example.org/failed\n" in text
    assert plan(text, Role.OPERATOR).changes == []
    Runbook.objects.all().delete()
    assert len(apply(text, Role.OPERATOR, "olga", now)) == 2
    assert stored() == both


def test_a_change_names_both_values(now: datetime) -> None:
    apply(TEXT, Role.OPERATOR, "olga", now)
    (change,) = plan(TEXT.replace(AIR, "text: Call bob."), Role.OPERATOR).changes
    assert (change.what, change.verb) == ("runbook of team=air", "change")
    assert change.fields == {"text": ("https://wiki.example.org/air", "Call bob.")}
    assert stored()["team=air"] == "https://wiki.example.org/air"


def test_drift_names_changed_and_added_runbooks(now: datetime) -> None:
    apply(TEXT, Role.OPERATOR, "olga", now)
    Runbook.objects.filter(selector="team=air").update(text="Call bob.")
    Runbook.objects.create(selector="team=search", text="Call eve.")
    (drift,) = drifts(Role.OPERATOR)
    assert [(change.what, change.verb) for change in drift.plan.changes] == [("runbook of team=air", "change")]
    assert drift.extra == ["runbook of team=search"]


def test_only_pruning_deletes_what_the_file_omits(now: datetime) -> None:
    apply(TEXT, Role.OPERATOR, "olga", now)
    apply("rules: []\n", Role.OPERATOR, "olga", now, prune=True)
    kept = f"runbooks:\n  - labels: team=air\n    {AIR}\n"
    apply(kept, Role.OPERATOR, "olga", now)
    assert len(stored()) == 2
    apply(kept, Role.OPERATOR, "olga", now, prune=True)
    assert list(stored()) == ["team=air"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("labels: team=air", "labels: team==air", "line 6: labels is 'team==air': “team==air”"),
        ("labels: team=air", "labels:", "line 6: labels: Enter at least one label."),
        (f"\n    {AIR}", "", "line 6: text: Enter a URL or a text."),
        (AIR, f"url: x\n    {AIR}", "line 7: url is 'x': no such key: allowed are labels, text"),
        ("team=payments,env!=dev", "team=air", "line 8: runbook of team=air occurs twice, first in line 6."),
        (AIR, f"text: {'x' * 1001}", "line 7: text is "),
    ],
)
def test_errors_name_the_line(old: str, new: str, expected: str) -> None:
    (problem,) = plan(TEXT.replace(old, new), Role.OPERATOR).problems
    assert str(problem).startswith(expected)
    assert not Runbook.objects.exists()
