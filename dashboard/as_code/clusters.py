"""Clusters. Entries have no secrets: an import keeps the stored ones, or reads a file that `token_from` names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings

from dashboard.access.roles import Role
from dashboard.as_code.base import Act, Plan, Section, Values, text_of
from dashboard.as_code.form_values import as_query, entry_key, export_value, field_name, labels_text
from dashboard.as_code.lines import Entry
from dashboard.forms.cluster import SECRETS, ClusterForm
from monitoring.engine import registration
from monitoring.models import Cluster, Discovery

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


class Clusters(Section):
    """All clusters that are not removed and that no source has found.

    Pauses do not belong to the configuration: an import does not start or stop polling.
    """

    name = "clusters"
    least = Role.ADMIN

    def entries(self) -> list[Values]:
        blank = entry_of(Cluster())
        always = ("name", "rest_url")
        return [
            {key: value for key, value in entry_of(each).items() if key in always or value != blank.get(key)}
            for each in Cluster.objects.filter(archived_at=None, found_resources=None).order_by("name")
        ]

    def plan(self, made: Plan, entries: Sequence[Entry]) -> None:
        removed = {cluster.name: cluster for cluster in Cluster.objects.exclude(archived_at=None)}
        stored = dict(made.clusters)
        kept = {registration.EMBEDDED, *Cluster.objects.exclude(found_resources=None).values_list("name", flat=True)}
        seen: dict[str, int] = {}
        for entry in entries:
            name = text_of(entry, "name")
            if not made.is_repeated(entry, f"cluster {name}", seen) and not made.has_unknown_keys(entry, _keys()):
                _plan(made, entry, stored.get(name) or removed.get(name) or Cluster())
        for name, cluster in stored.items():
            if f"cluster {name}" not in seen and name not in kept:
                made.remove(f"cluster {name}", removal(cluster))


def removal(cluster: Cluster, reason: str = "not in the applied YAML") -> Act:
    def remove(by: str, now: datetime) -> None:
        registration.remove(cluster, actor=by, reason=reason, now=now)

    return remove


def entry_of(cluster: Cluster) -> Values:
    form = ClusterForm(instance=cluster)
    omitted = {*SECRETS, "unanswered", "labels"}
    if cluster.discovery == Discovery.ZOOKEEPER:
        omitted |= {"rest_url"}  # the URL is the leader's, which Waymark observes
    entry = {entry_key(name): export_value(form, name) for name in form.fields if name not in omitted}
    return entry | {"labels": dict(sorted(cluster.labels.items()))}


def _plan(made: Plan, entry: Entry, cluster: Cluster) -> None:
    problems = len(made.problems)
    data = _data_of(made, entry)
    if len(made.problems) > problems:
        return
    is_watched = cluster.pk is not None and cluster.archived_at is None
    before = entry_of(cluster) if is_watched else {}
    secrets = {name: getattr(cluster, name) for name in SECRETS}
    form = ClusterForm(as_query(data), instance=cluster)
    if made.has_errors(entry, form, _key_of_field):
        return
    changed = form.instance
    made.clusters[changed.name] = changed
    after = entry_of(changed)
    for name in SECRETS:
        if (key := f"{name}_from") in entry.values and secrets[name] != getattr(changed, name):
            before, after = before | ({key: "another value"} if before else {}), after | {key: entry.values[key]}
    made.add(f"cluster {changed.name}", before, after, lambda by, now: _save(changed, by))


def _save(cluster: Cluster, by: str) -> None:
    if cluster.pk is None:
        registration.add(cluster, by)
        return
    registration.change(cluster, by)
    if cluster.archived_at is not None:
        registration.watch(cluster, watched=True, actor=by)


def _data_of(made: Plan, entry: Entry) -> Values:
    """Return the data of the form. A missing key has its default value, not the value of the stored cluster."""
    blank = ClusterForm(instance=Cluster())
    data: Values = {name: blank[name].value() for name in blank.fields}
    references = {f"{name}_from": name for name in SECRETS}
    for key, value in entry.values.items():
        if key in references:
            data[references[key]] = secret_in_file(made, entry, key)
        else:
            data[field_name(blank, key)] = labels_text(value) if key == "labels" else value
    return data


def secret_in_file(made: Plan, entry: Entry, key: str) -> str:
    """Return the content of the file that the value names, or add a problem."""
    name, root = str(entry.values[key] or ""), settings.CODE_SECRETS
    if not root:
        made.refuse(entry, key, name, "set WAYMARK_CODE_SECRETS to a directory of secrets first")
        return ""
    if not _NAME.fullmatch(name):
        made.refuse(entry, key, name, f"the name of a file in {root} is needed")
        return ""
    try:
        text = (Path(root) / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        made.refuse(entry, key, name, f"Waymark cannot read a file with this name in {root}")
        return ""
    return text.strip()


def _keys() -> set[str]:
    fields: dict[str, Any] = ClusterForm.base_fields
    return {_key_of_field(name) for name in fields if name != "unanswered"}


def _key_of_field(name: str) -> str:
    return f"{name}_from" if name in SECRETS else entry_key(name)
