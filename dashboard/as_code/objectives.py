"""Objectives: those of many jobs by labels, then those of single jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db.models import Q

from dashboard.as_code.base import Plan, Section, Values, text_of
from dashboard.as_code.lines import Entry
from dashboard.forms.measures import format_value
from dashboard.forms.objective import ObjectiveForm, new_objective
from monitoring.alerts.kinds.base import Unit
from monitoring.models import Job, Objective

_KEYS = ("cluster", "job", "labels", "percent", "limit", "days")
_FIELDS = {"percent": "percent", "limit_ms": "limit", "days": "days"}
ObjectiveKey = tuple[str, str, str]  # the names of a cluster and a job, and a label selector


class Objectives(Section):
    name = "objectives"

    def entries(self) -> list[Values]:
        return [_entry_of(each) for each in _stored()]

    def plan(self, made: Plan, entries: Sequence[Entry]) -> None:
        stored = {_key_of(each): each for each in _stored()}
        seen: dict[str, int] = {}
        found = {_plan(made, entry, stored, seen) for entry in entries}
        for key, objective in stored.items():
            if key not in found:
                made.remove_row(_name_of(key), objective)


def _plan(made: Plan, entry: Entry, stored: Mapping[ObjectiveKey, Objective], seen: dict[str, int]) -> ObjectiveKey:
    """Plan an entry, and return the key that it names."""
    cluster, name, labels = key = (text_of(entry, "cluster"), text_of(entry, "job"), text_of(entry, "labels"))
    job = made.jobs.get((cluster, name))
    if (cluster or name) and job is None:
        made.refuse(entry, "job", f"{name} of cluster {cluster}", "there is no such job")
        return key
    if job is not None and labels:
        made.refuse(entry, "labels", labels, "an objective of one job has no labels")
        return key
    if made.is_repeated(entry, _name_of(key), seen) or made.has_unknown_keys(entry, _KEYS):
        return key
    before = _entry_of(stored[key]) if key in stored else {}
    form = _form_of(entry.values, stored.get(key), job)
    if not made.has_errors(entry, form, _key_of_field):
        objective = form.apply()
        made.add(_name_of(key), before, _entry_of(objective), lambda by, now: objective.save())
    return key


def _stored() -> list[Objective]:
    """Return all objectives, except those of jobs in removed clusters, in the order of the export."""
    found = Objective.objects.filter(Q(job=None) | Q(job__cluster__archived_at=None)).select_related("job__cluster")
    return sorted(found, key=lambda each: (each.job is not None, *_key_of(each)))


def _key_of(objective: Objective) -> ObjectiveKey:
    job = objective.job
    return (job.cluster.name, job.name, "") if job else ("", "", objective.selector)


def _name_of(key: ObjectiveKey) -> str:
    cluster, job, labels = key
    return f"objective of job {job} of cluster {cluster}" if job else f"objective of {labels or 'all jobs'}"


def _entry_of(objective: Objective) -> Values:
    cluster, job, labels = _key_of(objective)
    scope = {"cluster": cluster, "job": job} if job else {"labels": labels} if labels else {}
    limit = format_value(Unit.MILLISECONDS, objective.limit_ms)
    percent = int(objective.percent) if objective.percent == int(objective.percent) else objective.percent
    return scope | {"percent": percent, "limit": limit, "days": objective.days}


def _form_of(values: Mapping[str, object], objective: Objective | None, job: Job | None) -> ObjectiveForm:
    """Return the form for an entry. A missing key has the default of a new objective."""
    usual = _entry_of(new_objective())
    labels = str(values.get("labels") or "")
    data = {name: str(values.get(key) or usual[key]) for name, key in _FIELDS.items()}
    scope = {"scope": "selector" if labels else "everything", "selector": labels}
    return ObjectiveForm(objective or new_objective(job), data | scope)


def _key_of_field(name: str) -> str:
    return {"selector": "labels", "limit_ms": "limit"}.get(name, name)
