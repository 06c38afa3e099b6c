"""Plan an import: read and check the whole text, and find all changes and errors before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dashboard.as_code.entries import (
    RuleKey,
    Values,
    channel_keys,
    entry_of_channel,
    entry_of_rule,
    form_of_channel,
    form_of_rule,
    key_of_field,
    key_of_rule,
    rule_keys,
)
from dashboard.as_code.export import stored_rules
from dashboard.as_code.lines import Entry, Problem, Unreadable, read_entries
from dashboard.as_code.objectives import (
    KEYS,
    entry_of_objective,
    form_of_objective,
    key_of_objective,
    name_of_objective,
    stored_objectives,
)
from dashboard.forms.channel import ChannelForm
from dashboard.forms.rule import RuleForm
from monitoring.alerts.kinds import UnknownKind, kind_of
from monitoring.alerts.kinds.base import Subject
from monitoring.models import AlertRule, Channel, ChannelKind, Job, Objective

SECTIONS = ("channels", "rules", "objectives")


@dataclass(frozen=True)
class Change:
    """A change of one rule, channel or objective. `fields` has the old and the new value by key."""

    what: str
    verb: str  # add, change, remove
    fields: dict[str, tuple[Any, Any]] = field(default_factory=dict)


@dataclass
class Plan:
    """The plan of an import. `absent` has the stored rules and channels that are not in the file."""

    problems: list[Problem] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    channels: list[tuple[Values, ChannelForm]] = field(default_factory=list)
    rules: list[tuple[Values, AlertRule]] = field(default_factory=list)
    objectives: list[Objective] = field(default_factory=list)
    absent: list[AlertRule | Channel] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.changes


def plan(text: str, *, may_allow_private: bool = True) -> Plan:
    """Return the plan for a text.

    `may_allow_private` says whether the user may allow a private address for a channel.
    """
    made = Plan()
    try:
        entries = read_entries(text, SECTIONS)
    except Unreadable as unreadable:
        made.problems.append(unreadable.problem)
        return made
    channels = _plan_channels(made, entries["channels"], may_allow_private=may_allow_private)
    _plan_rules(made, entries["rules"], channels)
    _plan_objectives(made, entries["objectives"])
    return made


def _plan_channels(made: Plan, entries: Iterable[Entry], *, may_allow_private: bool) -> dict[str, Channel]:
    """Add the changes of channels to the plan, and return all channels after the import by name."""
    stored = {channel.name: channel for channel in Channel.objects.select_related("escalate_to")}
    named = {str(entry.values.get("name") or ""): entry for entry in entries}
    known = stored | {name: stored.get(name) or Channel(name=name) for name in named if name}
    seen: dict[str, int] = {}
    for entry in entries:
        if entry.values.get("allow_private") is True and not may_allow_private:
            made.problems.append(_value_problem(entry, "allow_private", "true", "only an administrator can allow this"))
            continue
        _plan_channel(made, entry, stored, known, seen)
    made.absent += [channel for name, channel in stored.items() if name not in named]
    return known


def _plan_channel(
    made: Plan, entry: Entry, stored: Mapping[str, Channel], known: Mapping[str, Channel], seen: dict[str, int]
) -> None:
    name, kind = str(entry.values.get("name") or ""), str(entry.values.get("kind") or "")
    if kind not in ChannelKind.values:
        made.problems.append(_value_problem(entry, "kind", kind, f"allowed are {', '.join(ChannelKind.values)}"))
        return
    channel = stored.get(name) or Channel(kind=kind)
    if channel.kind != kind:
        made.problems.append(_value_problem(entry, "kind", kind, f"the channel {name} is of kind {channel.kind}"))
        return
    if _is_repeated(made, entry, f"channel {name}", name, seen) or _has_unknown_keys(made, entry, channel_keys(kind)):
        return
    to = entry.values.get("escalate_to")
    if to and str(to) not in known:
        made.problems.append(
            _value_problem(entry, "escalate_to", to, "no channel with this name exists or is in the file")
        )
        return
    before = entry_of_channel(channel) if channel.pk else {}
    form = form_of_channel(entry.values, channel, known)
    new_target = to and known[str(to)].pk is None
    if not form.is_valid() and not (new_target and set(form.errors) == {"escalate_to"}):
        made.problems += _form_problems(entry, form.errors.as_data())
        return
    after = entry_of_channel(form.instance) | ({"escalate_to": str(to)} if to else {})
    if change := _change(f"channel {name}", before, after):
        made.changes.append(change)
        made.channels.append((entry.values, form))


def _plan_rules(made: Plan, entries: Iterable[Entry], channels: Mapping[str, Channel]) -> None:
    stored = {key_of_rule(rule): rule for rule in stored_rules()}
    jobs = {(job.cluster.name, job.name): job for job in _named_jobs(entries)}
    seen: dict[str, int] = {}
    found_keys: set[RuleKey] = set()
    for entry in entries:
        _plan_rule(made, entry, stored, jobs, channels, seen, found_keys)
    made.absent += [rule for key, rule in stored.items() if key not in found_keys]


def _named_jobs(entries: Iterable[Entry]) -> Iterable[Job]:
    names = {str(entry.values["job"]) for entry in entries if entry.values.get("job")}
    return Job.objects.select_related("cluster").filter(name__in=names) if names else ()


def _plan_rule(
    made: Plan,
    entry: Entry,
    stored: Mapping[RuleKey, AlertRule],
    jobs: Mapping[tuple[str, str], Job],
    channels: Mapping[str, Channel],
    seen: dict[str, int],
    found_keys: set[RuleKey],
) -> None:
    try:
        kind = kind_of(str(entry.values.get("kind") or ""))
    except UnknownKind as unknown:
        made.problems.append(Problem(entry.line_of("kind"), str(unknown)))
        return
    asked = (str(entry.values.get("cluster") or ""), str(entry.values.get("job") or ""))
    job = jobs.get(asked)
    if asked != ("", "") and (job is None or kind.subject is not Subject.JOB):
        why = "there is no such job" if job is None else f"a rule of kind {kind.name} cannot apply to one job"
        made.problems.append(_value_problem(entry, "job", f"{asked[1]} of cluster {asked[0]}", why))
        return
    key = _key(entry, kind.name, job)
    found_keys.add(key)
    if _is_repeated(made, entry, str(key), str(key), seen) or _has_unknown_keys(made, entry, rule_keys(kind, job)):
        return
    missing = [name for name in _list(entry.values.get("channels")) if name not in channels]
    if missing:
        allowed = f"allowed are {', '.join(sorted(channels)) or 'none'}"
        made.problems.append(_value_problem(entry, "channels", ", ".join(missing), allowed))
        return
    rule = stored.get(key) or AlertRule(kind=kind.name, job=job)
    if rule.kind != kind.name:
        made.problems.append(_value_problem(entry, "kind", kind.name, f"the rule {rule.name} is of kind {rule.kind}"))
        return
    before = entry_of_rule(rule, kind) if rule.pk else {}
    form = form_of_rule(entry.values, rule)
    if not form.is_valid():
        made.problems += _form_problems(entry, form.errors.as_data())
        return
    _add_rule(made, entry, form, key, before)


def _add_rule(made: Plan, entry: Entry, form: RuleForm, key: RuleKey, before: Values) -> None:
    rule = form.apply()
    named = sorted(set(_list(entry.values.get("channels"))))
    after = entry_of_rule(rule, form.kind) | {"channels": named}
    if change := _change(str(key), before, after):
        made.changes.append(change)
        made.rules.append((entry.values | {"channels": named}, rule))


def _plan_objectives(made: Plan, entries: Iterable[Entry]) -> None:
    stored = {key_of_objective(each): each for each in stored_objectives()}
    jobs = {(job.cluster.name, job.name): job for job in _named_jobs(entries)}
    seen: dict[str, int] = {}
    for entry in entries:
        cluster, name, labels = (str(entry.values.get(key) or "") for key in ("cluster", "job", "labels"))
        job = jobs.get((cluster, name))
        if (cluster or name) and job is None:
            made.problems.append(_value_problem(entry, "job", f"{name} of cluster {cluster}", "there is no such job"))
            continue
        if job is not None and labels:
            made.problems.append(_value_problem(entry, "labels", labels, "an objective of one job has no labels"))
            continue
        key = (cluster, name, labels)
        if _is_repeated(made, entry, name_of_objective(key), str(key), seen) or _has_unknown_keys(made, entry, KEYS):
            continue
        before = entry_of_objective(stored[key]) if key in stored else {}
        form = form_of_objective(entry.values, stored.get(key), job)
        if not form.is_valid():
            made.problems += _form_problems(entry, form.errors.as_data())
            continue
        objective = form.apply()
        if change := _change(name_of_objective(key), before, entry_of_objective(objective)):
            made.changes.append(change)
            made.objectives.append(objective)


def _key(entry: Entry, kind: str, job: Job | None) -> RuleKey:
    if job is None:
        return RuleKey(" ".join(str(entry.values.get("name") or "").split()))
    return RuleKey("", job.cluster.name, job.name, kind, str(entry.values.get("severity") or "warning"))


def _change(what: str, before: Values, after: Values) -> Change | None:
    keys = [*after, *(key for key in before if key not in after)]
    fields = {key: (before.get(key), after.get(key)) for key in keys if _differs(before.get(key), after.get(key))}
    return Change(what, "change" if before else "add", fields) if fields else None


def _differs(before: Any, after: Any) -> bool:
    return (before or None) != (after or None) if not isinstance(after, bool) else before != after


def _is_repeated(made: Plan, entry: Entry, what: str, name: str, seen: dict[str, int]) -> bool:
    if name in seen:
        made.problems.append(Problem(entry.line, f"{what} occurs twice, first in line {seen[name]}."))
        return True
    seen[name] = entry.line
    return False


def _has_unknown_keys(made: Plan, entry: Entry, allowed: Collection[str]) -> bool:
    unknown_keys = [key for key in entry.values if key not in allowed]
    for key in unknown_keys:
        why = f"no such key: allowed are {', '.join(sorted(allowed))}"
        made.problems.append(_value_problem(entry, key, entry.values[key], why))
    return bool(unknown_keys)


def _value_problem(entry: Entry, key: str, value: object, why: str) -> Problem:
    return Problem(entry.line_of(key), f"{key} is {'empty' if value in (None, '') else repr(str(value)[:80])}: {why}.")


def _form_problems(entry: Entry, errors: Mapping[str, Any]) -> list[Problem]:
    found = []
    for name, of_field in errors.items():
        key = key_of_field(name)
        value = entry.values.get(key)
        start = f"{key}: " if value is None else f"{key} is {str(value)[:80]!r}: "
        for error in of_field:
            found += [Problem(entry.line_of(key), f"{start}{message}") for message in error.messages]
    return found


def _list(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else [str(value)] if value else []
