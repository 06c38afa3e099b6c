"""Sources that find clusters. Entries have no secrets: an import keeps the stored ones, or reads a file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dashboard.access.roles import Role
from dashboard.as_code.base import Act, Plan, Section, Values, text_of
from dashboard.as_code.clusters import secret_in_file
from dashboard.as_code.form_values import as_query, export_value
from dashboard.as_code.lines import Entry
from dashboard.forms.discovery import SECRETS, DiscoveryForm
from monitoring.discovery import sources
from monitoring.models import DiscoverySource

_FROM = {f"{name}_from": name for name in SECRETS}


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
        allowed = {*_FROM, *DiscoveryForm.base_fields} - {*SECRETS}
        for entry in entries:
            name = text_of(entry, "name")
            if not made.is_repeated(entry, f"discovery {name}", seen) and not made.has_unknown_keys(entry, allowed):
                _plan(made, entry, stored.get(name) or DiscoverySource())
        for name, source in stored.items():
            if f"discovery {name}" not in seen:
                made.remove(f"discovery {name}", _removal(source))


def entry_of(source: DiscoverySource) -> Values:
    form = DiscoveryForm(instance=source)
    return {name: export_value(form, name) for name in form.fields if name not in SECRETS}


def _plan(made: Plan, entry: Entry, source: DiscoverySource) -> None:
    before = entry_of(source) if source.pk else {}
    problems, secrets = len(made.problems), {name: getattr(source, name) for name in SECRETS}
    data: dict[str, Any] = entry_of(DiscoverySource()) | {key: v for key, v in entry.values.items() if key not in _FROM}
    for key in _FROM.keys() & entry.values.keys():
        data[_FROM[key]] = secret_in_file(made, entry, key)
    if len(made.problems) > problems:
        return
    form = DiscoveryForm(as_query(data), instance=source)
    if made.has_errors(entry, form, lambda name: f"{name}_from" if name in SECRETS else name):
        return
    changed = form.instance
    after = entry_of(changed)
    for key, name in _FROM.items():
        if key in entry.values and secrets[name] != getattr(changed, name):
            before, after = before | ({key: "another value"} if before else {}), after | {key: entry.values[key]}
    made.add(f"discovery {changed.name}", before, after, lambda by, now: _save(changed, by))


def _save(source: DiscoverySource, by: str) -> None:
    sources.save(source, by)


def _removal(source: DiscoverySource) -> Act:
    def remove(by: str, now: datetime) -> None:
        sources.remove(source, by)

    return remove
