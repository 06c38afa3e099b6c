"""Alert rules: those of many jobs by name, then those of single jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from dashboard.as_code.base import Plan, Section, Values, list_of, text_of
from dashboard.as_code.form_values import as_query, entry_key, export_value, field_name
from dashboard.as_code.lines import Entry, Problem
from dashboard.forms.rule import RuleForm
from monitoring.alerts.defaults import is_default
from monitoring.alerts.kinds import UnknownKind, kind_of, kinds
from monitoring.alerts.kinds.base import Kind, Subject
from monitoring.models import AlertRule, Job

_HEAD = ("name", "cluster", "job", "kind", "labels")
_SPECIAL_FIELDS = ("name", "scope", "selector", "channels")


@dataclass(frozen=True)
class RuleKey:
    """The identity of a rule: its name or, for a rule of one job, the job, the kind and the severity."""

    name: str
    cluster: str = ""
    job: str = ""
    kind: str = ""
    severity: str = ""

    def __str__(self) -> str:
        if self.name:
            return f"rule {self.name}"
        return f"rule {self.kind} ({self.severity}) of job {self.job} of cluster {self.cluster}"


class Rules(Section):
    name = "rules"

    def entries(self) -> list[Values]:
        """Return the entries of all rules. Unknown kinds are omitted."""
        return [
            {key: value for key, value in _entry_of(rule, kinds()[rule.kind]).items() if value not in (None, "")}
            for rule in _stored()
            if rule.kind in kinds()
        ]

    def plan(self, made: Plan, entries: Sequence[Entry]) -> None:
        stored = {_key_of(rule): rule for rule in _stored()}
        seen: dict[str, int] = {}
        found = {_plan(made, entry, stored, seen) for entry in entries}
        for key, rule in stored.items():
            if key not in found and not is_default(rule):
                made.remove_row(str(key), rule)


def _plan(made: Plan, entry: Entry, stored: Mapping[RuleKey, AlertRule], seen: dict[str, int]) -> RuleKey | None:
    """Plan an entry, and return its key if the entry names a rule."""
    try:
        kind = kind_of(str(entry.values.get("kind") or ""))
    except UnknownKind as unknown:
        made.problems.append(Problem(entry.line_of("kind"), str(unknown)))
        return None
    asked = (str(entry.values.get("cluster") or ""), str(entry.values.get("job") or ""))
    job = made.jobs.get(asked) if asked != ("", "") else None
    if asked != ("", "") and (job is None or kind.subject is not Subject.JOB):
        why = "there is no such job" if job is None else f"a rule of kind {kind.name} cannot apply to one job"
        made.refuse(entry, "job", f"{asked[1]} of cluster {asked[0]}", why)
        return None
    key = _key(entry, kind.name, job)
    if made.is_repeated(entry, str(key), seen) or made.has_unknown_keys(entry, _keys(kind, job)):
        return key
    channels = sorted(set(list_of(entry.values.get("channels"))))
    if missing := [name for name in channels if name not in made.channels]:
        allowed = f"allowed are {', '.join(sorted(made.channels)) or 'none'}"
        made.refuse(entry, "channels", ", ".join(missing), allowed)
        return key
    rule = stored.get(key) or AlertRule(kind=kind.name, job=job)
    if rule.kind != kind.name:
        made.refuse(entry, "kind", kind.name, f"the rule {rule.name} is of kind {rule.kind}")
        return key
    before = _entry_of(rule, kind) if rule.pk else {}
    form = _form_of(entry.values, rule)
    if made.has_errors(entry, form, _key_of_field):
        return key
    changed = form.apply()
    after = _entry_of(changed, kind) | {"channels": channels}
    made.add(str(key), before, after, lambda by, now: _save(made, changed, channels, now))
    return key


def _save(made: Plan, rule: AlertRule, channels: Sequence[str], now: datetime) -> None:
    rule.evaluated_until, rule.next_check_at = {}, now
    rule.save()
    rule.channels.set([made.channels[name] for name in channels])


def _stored() -> list[AlertRule]:
    """Return all rules, except those of jobs in removed clusters, in the order of the export."""
    found = AlertRule.objects.filter(Q(job=None) | Q(job__cluster__archived_at=None))
    return sorted(found.select_related("job__cluster").prefetch_related("channels"), key=_place)


def _place(rule: AlertRule) -> tuple[Any, ...]:
    own = (rule.job.cluster.name, rule.job.name) if rule.job else ("", "")
    return (rule.job is not None, *own, rule.kind, rule.name, rule.severity)


def _key(entry: Entry, kind: str, job: Job | None) -> RuleKey:
    if job is None:
        return RuleKey(text_of(entry, "name"))
    return RuleKey("", job.cluster.name, job.name, kind, str(entry.values.get("severity") or "warning"))


def _key_of(rule: AlertRule) -> RuleKey:
    if rule.job is None:
        return RuleKey(rule.name)
    return RuleKey("", rule.job.cluster.name, rule.job.name, rule.kind, rule.severity)


def _entry_of(rule: AlertRule, kind: Kind) -> Values:
    """Return the entry of a rule, with keys in the order of the export, and times and sizes as formatted text."""
    form = RuleForm(kind, rule)
    own = {entry_key(name): export_value(form, name) for name in form.own_names}
    head: Values = {"name": rule.name} if rule.job is None else {"cluster": rule.job.cluster.name, "job": rule.job.name}
    scope = {"labels": rule.selector} if rule.selector else {}
    rest = {
        entry_key(name): export_value(form, name)
        for name in form.fields
        if name not in (*form.own_names, *_SPECIAL_FIELDS)
    }
    channels = {"channels": sorted(each.name for each in rule.channels.all())} if rule.pk else {}
    return head | {"kind": kind.name} | scope | own | rest | channels


def _form_of(values: Mapping[str, Any], rule: AlertRule) -> RuleForm:
    """Return the form for an entry. A missing key has the default of the kind, not the value of the stored rule."""
    kind = kind_of(rule.kind)
    blank_form = RuleForm(kind, AlertRule(kind=kind.name, job=rule.job, check_every_s=kind.check_every_s))
    data: Values = {name: blank_form[name].value() for name in blank_form.fields}
    data |= {field_name(blank_form, key): value for key, value in values.items() if key not in (*_HEAD, "channels")}
    data |= {"name": values.get("name", "")}
    if "scope" in blank_form.fields:
        labels = values.get("labels")
        data |= {"scope": "selector" if labels else "everything", "selector": labels or ""}
    data["channels"] = []  # the import sets channels by name, because new channels of the file have no key yet
    return RuleForm(kind, rule, as_query(data))


def _keys(kind: Kind, job: Job | None) -> set[str]:
    form = RuleForm(kind, AlertRule(kind=kind.name, job=job))
    return {*(entry_key(name) for name in form.fields if name not in _SPECIAL_FIELDS), *_HEAD, "channels"}


def _key_of_field(name: str) -> str:
    return entry_key({"selector": "labels"}.get(name, name))
