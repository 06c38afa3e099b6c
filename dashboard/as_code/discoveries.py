"""Sources that find clusters. An entry has no kubeconfig: an import keeps the stored one, or reads a file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dashboard.access.roles import Role
from dashboard.as_code.base import Act, Plan, Section, Values, text_of
from dashboard.as_code.clusters import secret_in_file
from dashboard.as_code.form_values import as_query, export_value
from dashboard.as_code.lines import Entry
from dashboard.forms.discovery import DiscoveryForm
from monitoring.discovery import sources
from monitoring.models import DiscoverySource

_SECRET, _FROM = "kubeconfig", "kubeconfig_from"


class Discoveries(Section):
    name = "discoveries"
    least = Role.ADMIN

    def entries(self) -> list[Values]:
        blank = entry_of(DiscoverySource())
        return [
            {key: value for key, value in entry_of(each).items() if key == "name" or value != blank[key]}
            for each in DiscoverySource.objects.order_by("name")
        ]

    def plan(self, made: Plan, entries: Sequence[Entry]) -> None:
        stored = {source.name: source for source in DiscoverySource.objects.all()}
        seen: dict[str, int] = {}
        allowed = {_FROM, *DiscoveryForm.base_fields} - {_SECRET}
        for entry in entries:
            name = text_of(entry, "name")
            if not made.is_repeated(entry, f"discovery {name}", seen) and not made.has_unknown_keys(entry, allowed):
                _plan(made, entry, stored.get(name) or DiscoverySource())
        for name, source in stored.items():
            if f"discovery {name}" not in seen:
                made.remove(f"discovery {name}", _removal(source))


def entry_of(source: DiscoverySource) -> Values:
    form = DiscoveryForm(instance=source)
    return {name: export_value(form, name) for name in form.fields if name != _SECRET}


def _plan(made: Plan, entry: Entry, source: DiscoverySource) -> None:
    before = entry_of(source) if source.pk else {}
    problems, kubeconfig = len(made.problems), source.kubeconfig
    data: dict[str, Any] = entry_of(DiscoverySource()) | {key: v for key, v in entry.values.items() if key != _FROM}
    if _FROM in entry.values:
        data[_SECRET] = secret_in_file(made, entry, _FROM)
    if len(made.problems) > problems:
        return
    form = DiscoveryForm(as_query(data), instance=source)
    if not form.is_valid():
        made.refuse_form(entry, form.errors.as_data(), lambda name: _FROM if name == _SECRET else name)
        return
    changed = form.instance
    after = entry_of(changed)
    if kubeconfig != changed.kubeconfig and _FROM in entry.values:
        before, after = before | ({_FROM: "another value"} if before else {}), after | {_FROM: entry.values[_FROM]}
    made.add(f"discovery {changed.name}", before, after, lambda by, now: _save(changed, by))


def _save(source: DiscoverySource, by: str) -> None:
    sources.save(source, by)


def _removal(source: DiscoverySource) -> Act:
    def remove(by: str, now: datetime) -> None:
        sources.remove(source, by)

    return remove
