"""Jobs: their labels, automation, schedules and retention. An entry may be there before the job first runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import Any

from django import forms

from dashboard.acts.job_settings import save_automation, save_retention
from dashboard.as_code.base import Act, JobKey, Plan, Section, Values, text_of
from dashboard.as_code.form_values import labels_text
from dashboard.as_code.job_settings import KEYS, explicit_settings, forms_of, own_entry, shown_values, values_of
from dashboard.as_code.lines import Entry
from dashboard.forms.cluster import LabelsField
from monitoring import audit
from monitoring.alerts.scope import labels_of
from monitoring.engine.registration import EMBEDDED
from monitoring.history_job import NAME as HISTORY
from monitoring.job_defaults import DEFAULT, OWN, Parsed, parsed, put_defaults, settings_for, settings_of_columns
from monitoring.models import AlertRule, Job

_HEAD = ("cluster", "name")


class Jobs(Section):
    """The jobs that have settings, labels or a rule. Jobs themselves are never removed, only reset."""

    name = "jobs"

    def entries(self) -> list[Values]:
        blank = values_of(Job())
        with_rules = set(AlertRule.objects.exclude(job=None).values_list("job", flat=True))
        stored = Job.objects.select_related("cluster").filter(cluster__archived_at=None)
        entries = []
        for job in stored.order_by("cluster__name", "name"):
            own = own_entry(job, blank)
            if (own or job.pk in with_rules) and not _is_waymarks(job):
                entries.append({"cluster": job.cluster.name, "name": job.name} | own)
        return entries

    def plan(self, made: Plan, entries: Sequence[Entry]) -> None:
        stored = dict(made.jobs)
        defaults = parsed(made.defaults.values())
        seen: dict[str, int] = {}
        for entry in entries:
            cluster, name = text_of(entry, "cluster"), str(entry.values.get("name") or "").strip()
            what = what_of((cluster, name))
            if made.is_repeated(entry, what, seen) or made.has_unknown_keys(entry, (*_HEAD, *KEYS)):
                continue
            made.planned_jobs.add((cluster, name))
            if cluster not in made.clusters:
                allowed = f"there is no such cluster: allowed are {', '.join(sorted(made.clusters)) or 'none'}"
                made.refuse(entry, "cluster", cluster, allowed)
            elif not 0 < len(name) <= 500:
                made.refuse(entry, "name", name, "a name of 1 to 500 characters is needed")
            else:
                job = stored.get((cluster, name)) or Job(cluster=made.clusters[cluster], name=name)
                made.jobs[cluster, name] = job
                _plan(made, entry, job, defaults, made.add)
        blank = values_of(Job())
        for key, job in stored.items():
            if key not in made.planned_jobs and own_entry(job, blank) and not _is_waymarks(job):
                _plan(made, Entry(0), copy(job), defaults, _removal_of(made))


def plan_defaults_of_others(made: Plan) -> None:
    """Add the changes of jobs without an entry that follow changed defaults or changed labels of their cluster."""
    defaults = parsed(made.defaults.values())
    for key, stored in made.jobs.items():
        if key in made.planned_jobs or stored.pk is None:
            continue
        job = copy(stored)
        job.cluster = made.clusters.get(key[0], job.cluster)
        job.settings_from = dict(stored.settings_from)
        changed = put_defaults(job, settings_for(labels_of(job.name, job.labels, job.cluster), defaults))
        if changed or job.settings_from != stored.settings_from:
            made.add(what_of(key), shown_values(stored), shown_values(job), _nothing)


def what_of(key: JobKey) -> str:
    return f"job {key[1]} of cluster {key[0]}"


def _plan(
    made: Plan, entry: Entry, job: Job, defaults: Parsed, add: Callable[[str, Values, Values, Act], None]
) -> None:
    before, key = shown_values(job) if job.pk else {}, (job.cluster.name, job.name)
    values = {name: value for name, value in entry.values.items() if name not in _HEAD}
    inherited = Job(cluster=job.cluster, name=job.name)
    given = settings_for(labels_of(job.name, _labels(values), made.clusters[key[0]]), defaults)
    put_defaults(inherited, given)
    both = forms_of(values, job, inherited)
    if not both.is_valid(made, entry):
        return
    explicit = explicit_settings(values)
    sources = dict.fromkeys(settings_of_columns(given), DEFAULT) | dict.fromkeys(explicit, OWN)
    job.settings_from = sources
    after = shown_values(job)
    if not before:
        unset = shown_values(Job())
        after = {"cluster": key[0]} | {name: value for name, value in after.items() if value != unset[name]}

    def save(by: str, now: datetime) -> None:
        if job.pk is None:
            job.save()
            audit.record(by, "job.add", f"job {job.name}")
        if both.automation.changed_data:
            save_automation(both.automation, by, now)
        if both.retention.changed_data:
            save_retention(both.retention, by)
        job.settings_from = sources
        job.save(update_fields=["settings_from"])

    add(what_of(key), before, after, save)


def _removal_of(made: Plan) -> Callable[[str, Values, Values, Act], None]:
    """Return a function that plans to reset a job without an entry, for an import that removes missing entries."""

    def reset(what: str, before: Values, after: Values, act: Act) -> None:
        if before != after:
            made.remove(f"the settings of {what}", act)

    return reset


def _labels(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of an entry, or none if they are invalid, which the form reports."""
    try:
        return dict(LabelsField(required=False).clean(labels_text(values.get("labels") or "")))
    except (forms.ValidationError, AttributeError):
        return {}


def _nothing(by: str, now: datetime) -> None:
    """Do nothing: `apply` gives all jobs their defaults at the end."""


def _is_waymarks(job: Job) -> bool:
    """Return whether the job is Waymark's own, whose settings come with its version."""
    return job.cluster.name == EMBEDDED and job.name == HISTORY
