"""Channels. Entries have no secrets; an import keeps the stored ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from dashboard.access.roles import Role
from dashboard.as_code.base import Plan, Section, Values, text_of
from dashboard.as_code.form_values import as_query, entry_key, export_value, field_name
from dashboard.as_code.lines import Entry
from dashboard.forms.channel import FORMS, ChannelForm
from monitoring.models import Channel, ChannelKind

_SECRETS = ("smtp", "signing_secret", "apprise_url", "remove_secret")


class Channels(Section):
    name = "channels"

    def entries(self) -> list[Values]:
        return [_entry_of(each) for each in Channel.objects.select_related("escalate_to").order_by("name")]

    def plan(self, made: Plan, entries: Sequence[Entry]) -> None:
        stored = dict(made.channels)
        named = [text_of(entry, "name") for entry in entries]
        made.channels |= {name: Channel(name=name) for name in named if name and name not in stored}
        seen: dict[str, int] = {}
        for entry in entries:
            if entry.values.get("allow_private") is True and made.role < Role.ADMIN:
                made.refuse(entry, "allow_private", "true", "only an administrator can allow this")
                continue
            self._plan(made, entry, stored, seen)

    def _plan(self, made: Plan, entry: Entry, stored: Mapping[str, Channel], seen: dict[str, int]) -> None:
        name, kind = text_of(entry, "name"), str(entry.values.get("kind") or "")
        if kind not in ChannelKind.values:
            made.refuse(entry, "kind", kind, f"allowed are {', '.join(ChannelKind.values)}")
            return
        channel = stored.get(name) or Channel(kind=kind)
        if channel.kind != kind:
            made.refuse(entry, "kind", kind, f"the channel {name} is of kind {channel.kind}")
            return
        if made.is_repeated(entry, f"channel {name}", seen) or made.has_unknown_keys(entry, _keys(kind)):
            return
        to = entry.values.get("escalate_to")
        if to and str(to) not in made.channels:
            made.refuse(entry, "escalate_to", to, "no channel with this name exists or is in the file")
            return
        before = _entry_of(channel) if channel.pk else {}
        form = _form_of(entry.values, channel, made.channels)
        new_target = to and made.channels[str(to)].pk is None
        if not form.is_valid() and not (new_target and set(form.errors) == {"escalate_to"}):
            made.refuse_form(entry, form.errors.as_data(), entry_key)
            return
        made.channels[name] = form.instance
        after = _entry_of(form.instance) | ({"escalate_to": str(to)} if to else {})
        made.add(f"channel {name}", before, after, lambda by, now: _save(made, form, str(to or "")))


def _save(made: Plan, form: ChannelForm, to: str) -> None:
    """Save a channel, and its escalation after all channels, because it may escalate to a new channel of the file."""
    form.instance.escalate_to = None
    form.instance.save()

    def escalate(by: str, now: datetime) -> None:
        form.instance.escalate_to = made.channels[to]
        form.instance.save(update_fields=["escalate_to"])

    if to:
        made.final.append(escalate)


def _entry_of(channel: Channel) -> Values:
    form = _form_class(channel.kind)(instance=channel, may_allow_private=True)
    entry: Values = {"name": channel.name, "kind": channel.kind}
    for name in form.fields:
        if name not in (*_SECRETS, "name", "escalate_to"):
            entry[entry_key(name)] = export_value(form, name)
    entry |= {"escalate_to": channel.escalate_to.name} if channel.escalate_to else {}
    return {key: value for key, value in entry.items() if value not in (None, "")}


def _form_of(values: Mapping[str, Any], channel: Channel, known: Mapping[str, Channel]) -> ChannelForm:
    """Return the form for an entry. It allows private addresses: the caller has checked the right to do so."""
    made = _form_class(channel.kind)
    blank_form = made(instance=Channel(kind=channel.kind), may_allow_private=True)
    data: Values = {name: blank_form[name].value() for name in blank_form.fields if name not in _SECRETS}
    data |= {field_name(blank_form, key): value for key, value in values.items() if key not in ("kind", "escalate_to")}
    to = known.get(str(values.get("escalate_to") or ""))
    data["escalate_to"] = to.pk if to is not None and to.pk else ""
    return made(as_query(data), instance=channel, may_allow_private=True)


def _keys(kind: str) -> set[str]:
    form = _form_class(kind)(instance=Channel(kind=kind), may_allow_private=True)
    return {entry_key(name) for name in form.fields if name not in _SECRETS} | {"kind"}


def _form_class(kind: str) -> type[ChannelForm]:
    return FORMS[ChannelKind(kind)]
