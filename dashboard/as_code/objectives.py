"""Convert objectives to entries and back. An import adds and changes objectives but deletes none."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard.as_code.entries import Values
from dashboard.forms.measures import format_value
from dashboard.forms.objective import ObjectiveForm, new_objective
from monitoring.alerts.kinds.base import Unit
from monitoring.models import Job, Objective

KEYS = frozenset({"cluster", "job", "labels", "percent", "limit", "days"})
ObjectiveKey = tuple[str, str, str]  # cluster, job and labels


def key_of_objective(objective: Objective) -> ObjectiveKey:
    job = objective.job
    return (job.cluster.name, job.name, "") if job else ("", "", objective.selector)


def name_of_objective(key: ObjectiveKey) -> str:
    _, job, labels = key
    return f"objective of job {job}" if job else f"objective of {labels or 'all jobs'}"


def stored_objectives() -> list[Objective]:
    """Return the objectives of many jobs, then those of single jobs."""
    found = Objective.objects.select_related("job__cluster")
    return sorted(found, key=lambda each: (each.job is not None, *key_of_objective(each)))


def entry_of_objective(objective: Objective) -> Values:
    cluster, job, labels = key_of_objective(objective)
    scope = {"cluster": cluster, "job": job} if job else {"labels": labels} if labels else {}
    limit = format_value(Unit.MILLISECONDS, objective.limit_ms)
    percent = int(objective.percent) if objective.percent == int(objective.percent) else objective.percent
    return scope | {"percent": percent, "limit": limit, "days": objective.days}


def form_of_objective(values: Mapping[str, object], objective: Objective | None, job: Job | None) -> ObjectiveForm:
    """Return the form for an entry. A missing key has the default of a new objective."""
    known = objective or new_objective(job)
    usual = entry_of_objective(new_objective())
    labels = str(values.get("labels") or "")
    data = {name: str(values.get(key) or usual[key]) for name, key in _FIELDS.items()}
    return ObjectiveForm(known, data | {"scope": "selector" if labels else "everything", "selector": labels})


_FIELDS = {"percent": "percent", "limit_ms": "limit", "days": "days"}
