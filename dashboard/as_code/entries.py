"""Convert rules and channels to entries and back.

Entries are read by the forms of the pages, so both have the same checks and messages. Entries have no secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import QueryDict

from dashboard.forms.channel import FORMS, ChannelForm
from dashboard.forms.rule import RuleForm
from monitoring.alerts.kinds import kind_of
from monitoring.alerts.kinds.base import Kind
from monitoring.models import AlertRule, Channel, ChannelKind, Job

Values = dict[str, Any]
_SECRETS = ("smtp", "signing_secret", "apprise_url", "remove_secret")
RULE_HEAD = ("name", "cluster", "job", "kind", "labels")


@dataclass(frozen=True)
class RuleKey:
    """The identity of a rule: its name or, for a rule of one job, the job, the kind and the severity."""

    name: str
    cluster: str = ""
    job: str = ""
    kind: str = ""
    severity: str = ""

    def __str__(self) -> str:
        return f"rule {self.name}" if self.name else f"rule {self.kind} ({self.severity}) of job {self.job}"


def key_of_rule(rule: AlertRule) -> RuleKey:
    if rule.job is None:
        return RuleKey(rule.name)
    return RuleKey("", rule.job.cluster.name, rule.job.name, rule.kind, rule.severity)


def entry_of_rule(rule: AlertRule, kind: Kind) -> Values:
    """Return the entry of a rule, with keys in the order of the export, and times and sizes as formatted text."""
    form = RuleForm(kind, rule)
    own = {_entry_key(name): _export_value(form, name) for name in form.own_names}
    head: Values = {"name": rule.name} if rule.job is None else {"cluster": rule.job.cluster.name, "job": rule.job.name}
    scope = {"labels": rule.selector} if rule.selector else {}
    rest = {
        _entry_key(name): _export_value(form, name)
        for name in form.fields
        if name not in (*form.own_names, *_SPECIAL_FIELDS)
    }
    channels = {"channels": sorted(each.name for each in rule.channels.all())} if rule.pk else {}
    return head | {"kind": kind.name} | scope | own | rest | channels


_SPECIAL_FIELDS = ("name", "scope", "selector", "channels")


def form_of_rule(values: Mapping[str, Any], rule: AlertRule) -> RuleForm:
    """Return the form for an entry. A missing key has the default of the kind, not the value of the stored rule."""
    kind = kind_of(rule.kind)
    blank_form = RuleForm(kind, AlertRule(kind=kind.name, job=rule.job, check_every_s=kind.check_every_s))
    data: Values = {name: blank_form[name].value() for name in blank_form.fields}
    data |= {
        _field_name(blank_form, key): value for key, value in values.items() if key not in (*RULE_HEAD, "channels")
    }
    data |= {"name": values.get("name", "")}
    if "scope" in blank_form.fields:
        labels = values.get("labels")
        data |= {"scope": "selector" if labels else "everything", "selector": labels or ""}
    data["channels"] = []  # the import sets channels by name, because new channels of the file have no key yet
    return RuleForm(kind, rule, _as_query(data))


def rule_keys(kind: Kind, job: Job | None) -> set[str]:
    form = RuleForm(kind, AlertRule(kind=kind.name, job=job))
    return {*(_entry_key(name) for name in form.fields if name not in _SPECIAL_FIELDS), *RULE_HEAD, "channels"}


def entry_of_channel(channel: Channel) -> Values:
    form = form_class(channel.kind)(instance=channel, may_allow_private=True)
    entry: Values = {"name": channel.name, "kind": channel.kind}
    for name in form.fields:
        if name not in (*_SECRETS, "name", "escalate_to"):
            entry[_entry_key(name)] = _export_value(form, name)
    return entry | ({"escalate_to": channel.escalate_to.name} if channel.escalate_to else {})


def form_of_channel(values: Mapping[str, Any], channel: Channel, known: Mapping[str, Channel]) -> ChannelForm:
    """Return the form for an entry. The caller has checked the right to allow private addresses."""
    made = form_class(channel.kind)
    blank_form = made(instance=Channel(kind=channel.kind), may_allow_private=True)
    data: Values = {name: blank_form[name].value() for name in blank_form.fields if name not in _SECRETS}
    data |= {_field_name(blank_form, key): value for key, value in values.items() if key not in ("kind", "escalate_to")}
    to = known.get(str(values.get("escalate_to") or ""))
    data["escalate_to"] = to.pk if to is not None and to.pk else ""
    return made(_as_query(data), instance=channel, may_allow_private=True)


def channel_keys(kind: str) -> set[str]:
    form = form_class(kind)(instance=Channel(kind=kind), may_allow_private=True)
    return {_entry_key(name) for name in form.fields if name not in _SECRETS} | {"kind"}


def form_class(kind: str) -> type[ChannelForm]:
    return FORMS[ChannelKind(kind)]


def key_of_field(name: str) -> str:
    """Return the key in an entry for a field of the form."""
    return _entry_key({"selector": "labels", "limit_ms": "limit"}.get(name, name))


def _entry_key(name: str) -> str:
    return name.removesuffix("_s")


def _field_name(form: forms.BaseForm, key: str) -> str:
    return key if key in form.fields else f"{key}_s"


def _export_value(form: forms.BaseForm, name: str) -> Any:
    value = form[name].value()
    if value is None or isinstance(value, bool | int):
        return value
    return str(value)


def _as_query(data: Mapping[str, Any]) -> QueryDict:
    """Return the data as a browser would send it: without unchecked boxes, and with each value of a list."""
    query = QueryDict(mutable=True)
    for name, value in data.items():
        if value is None or value is False:
            continue
        values = value if isinstance(value, list) else ["on" if value is True else str(value)]
        query.setlist(name, [str(each) for each in values])
    return query
