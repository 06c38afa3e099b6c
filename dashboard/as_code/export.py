"""Export all rules, channels and objectives as YAML.

Entries and keys are sorted, so that exports differ only by changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from dashboard.as_code.entries import Values, entry_of_channel, entry_of_rule
from dashboard.as_code.objectives import entry_of_objective, stored_objectives
from monitoring.alerts.kinds import kinds
from monitoring.models import AlertRule, Channel

_HEAD = """\
# Waymark's rules and channels, without the secrets of channels. An import keeps the stored secrets.
# To see what an import would change: manage.py rules diff FILE
"""


def export() -> str:
    """Return the text. Objectives are a part of it only if there are any."""
    objectives = [entry_of_objective(each) for each in stored_objectives()]
    lines = [*_section("channels", channel_entries()), *_section("rules", rule_entries())]
    return _HEAD + "\n".join([*lines, *(_section("objectives", objectives) if objectives else [])]) + "\n"


def channel_entries() -> list[Values]:
    return [entry_of_channel(channel) for channel in Channel.objects.select_related("escalate_to").order_by("name")]


def rule_entries() -> list[Values]:
    """Return the rules of many jobs by kind and name, then the rules of single jobs. Unknown kinds are omitted."""
    return [entry_of_rule(rule, kinds()[rule.kind]) for rule in stored_rules() if rule.kind in kinds()]


def stored_rules() -> list[AlertRule]:
    found = AlertRule.objects.select_related("job__cluster").prefetch_related("channels")
    return sorted(found, key=_place)


def _place(rule: AlertRule) -> tuple[Any, ...]:
    own = (rule.job.cluster.name, rule.job.name) if rule.job else ("", "")
    return (rule.job is not None, *own, rule.kind, rule.name, rule.severity)


def _section(name: str, entries: list[Values]) -> Iterator[str]:
    if not entries:
        yield f"{name}: []"
        return
    yield f"{name}:"
    for entry in entries:
        yield from _entry(entry)


def _entry(entry: Values) -> Iterator[str]:
    values = {key: value for key, value in entry.items() if value not in (None, "")}
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=False)
    for number, line in enumerate(text.splitlines()):
        yield f"{'  - ' if number == 0 else '    '}{line}"
