"""Runbooks for jobs by label. The runbook of a rule is a key of the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboard.as_code.base import Plan, Section, Values
from dashboard.as_code.lines import Entry
from dashboard.forms.runbook import RunbookForm
from monitoring.models import Runbook

_KEYS = ("labels", "text")


class Runbooks(Section):
    name = "runbooks"

    def entries(self) -> list[Values]:
        return [_entry_of(each) for each in Runbook.objects.all()]

    def plan(self, made: Plan, entries: Sequence[Entry]) -> None:
        stored = {each.selector: each for each in Runbook.objects.all()}
        seen: dict[str, int] = {}
        found = {_plan(made, entry, stored, seen) for entry in entries}
        for labels, runbook in stored.items():
            if labels not in found:
                made.remove_row(_name_of(labels), runbook)


def _plan(made: Plan, entry: Entry, stored: Mapping[str, Runbook], seen: dict[str, int]) -> str:
    """Plan an entry, and return the labels that it names."""
    labels = str(entry.values.get("labels") or "").strip()
    if made.is_repeated(entry, _name_of(labels), seen) or made.has_unknown_keys(entry, _KEYS):
        return labels
    runbook = stored.get(labels) or Runbook(selector=labels)
    before = _entry_of(runbook) if runbook.pk else {}
    form = RunbookForm(runbook, {"selector": labels, "text": str(entry.values.get("text") or "")})
    if not made.has_errors(entry, form, lambda name: {"selector": "labels"}.get(name, name)):
        made.add(_name_of(labels), before, _entry_of(form.apply()), lambda by, now: runbook.save())
    return labels


def _name_of(labels: str) -> str:
    return f"runbook of {labels}"


def _entry_of(runbook: Runbook) -> Values:
    return {"labels": runbook.selector, "text": runbook.text}
