"""Grants of accounts, which must exist: passwords and roles do not belong to the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.contrib.auth.models import User

from dashboard.access import accounts
from dashboard.access.roles import Role
from dashboard.as_code.base import Act, Plan, Section, Values, text_of
from dashboard.as_code.lines import Entry
from dashboard.forms.account import GrantForm
from monitoring.models import Grant

_KEYS = ("user", "role", "cluster", "labels")


class Grants(Section):
    name = "grants"
    least = Role.ADMIN

    def entries(self) -> list[Values]:
        return [{key: value for key, value in _entry_of(each).items() if value} for each in _stored()]

    def plan(self, made: Plan, entries: Sequence[Entry]) -> None:
        stored = {_what(_entry_of(each)): each for each in _stored()}
        users = {user.get_username(): user for user in User.objects.filter(is_active=True)}
        seen: dict[str, int] = {}
        for entry in entries:
            values = {key: text_of(entry, key) for key in _KEYS}
            what = _what(values)
            if made.is_repeated(entry, what, seen) or made.has_unknown_keys(entry, _KEYS):
                continue
            if values["user"] not in users:
                made.refuse(entry, "user", values["user"], "no active account has this name")
            elif values["cluster"] and values["cluster"] not in made.clusters:
                allowed = f"there is no such cluster: allowed are {', '.join(sorted(made.clusters)) or 'none'}"
                made.refuse(entry, "cluster", values["cluster"], allowed)
            else:
                _plan(made, entry, values, users[values["user"]], stored.get(what))
        for what, grant in stored.items():
            if what not in seen:
                made.remove(what, _removal(grant))


def _plan(made: Plan, entry: Entry, values: Values, user: User, grant: Grant | None) -> None:
    cluster = made.clusters.get(values["cluster"])
    # The form cannot choose a cluster that the same text adds.
    is_new = cluster is not None and (cluster.pk is None or cluster.archived_at is not None)
    selector = values["labels"] or (f"cluster={values['cluster']}" if is_new else "")
    chosen = "" if cluster is None or is_new else cluster.pk
    form = GrantForm({"role": values["role"], "selector": selector, "cluster": chosen})
    if not form.is_valid() or (is_new and values["labels"]):
        errors = form.errors.as_data()
        made.refuse_form(entry, errors, lambda name: {"selector": "labels"}.get(name, name))
        if not errors:
            made.refuse(entry, "labels", values["labels"], "give a cluster or labels, not both")
        return

    def save(by: str, now: datetime) -> None:
        if grant is not None:
            accounts.revoke_grant(grant, by)
        accounts.grant(user, values["role"], cluster, form.cleaned_data["selector"] if not cluster else "", by, now)

    after = values | {"labels": values["labels"] and form.cleaned_data["selector"]}
    made.add(_what(values), _entry_of(grant) if grant else {}, after, save)


def _stored() -> list[Grant]:
    found = Grant.objects.select_related("user", "cluster").filter(user__is_active=True)
    rows = found.order_by("user__username", "cluster__name", "selector")
    return [grant for grant in rows if grant.cluster is None or grant.cluster.archived_at is None]


def _entry_of(grant: Grant) -> Values:
    cluster = grant.cluster.name if grant.cluster else ""
    return {"user": grant.user.get_username(), "role": grant.role, "cluster": cluster, "labels": grant.selector}


def _what(values: Values) -> str:
    scope = f"cluster {values['cluster']}" if values["cluster"] else f"jobs with {values['labels']}"
    return f"grant of {values['user']} on {scope}"


def _removal(grant: Grant) -> Act:
    def remove(by: str, now: datetime) -> None:
        accounts.revoke_grant(grant, by)

    return remove
