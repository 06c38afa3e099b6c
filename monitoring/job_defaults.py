"""Default settings for the jobs that a selector chooses, such as `env=prod` or `cluster=east`.

The columns of Job are the only values that other code reads, so defaults are written there: at once when they change,
and by a task for jobs that are new or have other labels. `Job.settings_from` stores where each setting comes from:

- "own": a person set it. No default changes it.
- "default": a default wrote it. It follows the defaults, and is blank again without one.
- no entry: own if it is not blank, else free for a default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction

from monitoring import audit
from monitoring.alerts.scope import labels_of
from monitoring.alerts.selector import Selector, parse_stored
from monitoring.models import Job, JobDefault
from monitoring.recovery.run_schedule import run_timetable, set_run_schedule
from monitoring.savepoints.schedule import SCHEDULE_COLUMNS, set_schedule, timetable_of

OWN, DEFAULT = "own", "default"
SAVEPOINTS, RUNS = "savepoint_schedule", "run_schedule"
_SINGLE = (
    *("auto_restart", "restore_from", "max_restarts_per_hour", "max_restarts_per_day", "oldest_state_s"),
    *("restart_on_lost", "allow_empty_start", "managed_elsewhere"),
    *("savepoints_kept", "savepoints_kept_s", "final_savepoints_kept"),
)
# The columns of each setting. A schedule is one setting, because its columns have no meaning without the others.
SETTINGS: Mapping[str, tuple[str, ...]] = {
    SAVEPOINTS: SCHEDULE_COLUMNS,
    RUNS: ("run_cron", "run_time_zone"),
    **{name: (name,) for name in _SINGLE},
}
_SETTING_OF = dict.fromkeys(("savepoint_time_zone", "savepoint_quiet"), SAVEPOINTS) | {"run_time_zone": RUNS}
BLANK: Mapping[str, Any] = {column: getattr(Job(), column) for columns in SETTINGS.values() for column in columns}
Parsed = Sequence[tuple[Selector, Mapping[str, Any]]]


def parsed(defaults: Iterable[JobDefault]) -> Parsed:
    """Return the defaults, the most important last. An invalid selector chooses no job."""
    ordered = sorted(defaults, key=lambda each: (each.priority, each.selector))
    found = ((parse_stored(default.selector), default.settings) for default in ordered)
    return [(selector, settings) for selector, settings in found if selector is not None]


def settings_for(labels: Mapping[str, str], defaults: Parsed) -> dict[str, Any]:
    """Return the values by column that the defaults give to a job with these labels."""
    return {
        column: value
        for selector, settings in defaults
        if selector.matches(labels)
        for column, value in settings.items()
        if column in BLANK
    }


def is_own(job: Job, setting: str) -> bool:
    """Return whether the setting has a value that no default changes."""
    source = job.settings_from.get(setting)
    return source == OWN or (source is None and any(getattr(job, each) != BLANK[each] for each in SETTINGS[setting]))


def settings_of_columns(columns: Iterable[str]) -> set[str]:
    changed = set(columns)
    return {setting for setting, own in SETTINGS.items() if changed & set(own)}


def put_defaults(job: Job, given: Mapping[str, Any]) -> set[str]:
    """Write the given values to the settings of `job` that are not its own, and return the changed columns.

    The job is not saved.
    """
    changed = set()
    sources = {setting: source for setting, source in job.settings_from.items() if source == OWN}
    for setting, columns in SETTINGS.items():
        if is_own(job, setting):
            continue
        if any(column in given for column in columns):
            sources[setting] = DEFAULT
        for column in columns:
            value = given.get(column, BLANK[column])
            if getattr(job, column) != value:
                setattr(job, column, value)
                changed.add(column)
    job.settings_from = sources
    return changed


def record_own(job: Job, fields: Iterable[str]) -> None:
    """Store that a person set these fields of a form. No default changes them, unless they are as the default."""
    given = settings_for(labels_of(job.name, job.labels, job.cluster), parsed(JobDefault.objects.all()))
    for setting in {_SETTING_OF.get(field, field) for field in fields} & SETTINGS.keys():
        columns = SETTINGS[setting]
        is_default = all(column in given and getattr(job, column) == given[column] for column in columns)
        job.settings_from = {**job.settings_from, setting: DEFAULT if is_default else OWN}
    job.save(update_fields=["settings_from"])


def apply_defaults(by: str, now: datetime) -> int:
    """Give all jobs their defaults, and return the number of changed jobs."""
    defaults = parsed(JobDefault.objects.all())
    jobs = Job.objects.select_related("cluster").order_by("pk")
    if not defaults:
        jobs = jobs.exclude(settings_from={})
    return sum(
        _apply(job, by, now)
        for job in jobs
        if _would_change(job, settings_for(labels_of(job.name, job.labels, job.cluster), defaults))
    )


def _would_change(job: Job, given: Mapping[str, Any]) -> bool:
    before = job.settings_from
    changed = put_defaults(job, given)
    return bool(changed) or job.settings_from != before


@transaction.atomic
def _apply(found: Job, by: str, now: datetime) -> bool:
    """Give a job its defaults. The row is locked and read again, because a person may have changed it meanwhile."""
    job = Job.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=found.pk)
    was = {column: getattr(job, column) for column in BLANK}
    defaults = parsed(JobDefault.objects.all())
    changed = put_defaults(job, settings_for(labels_of(job.name, job.labels, job.cluster), defaults))
    job.save(update_fields=["settings_from", *changed])
    settings = settings_of_columns(changed)
    if SAVEPOINTS in settings:
        set_schedule(job, timetable_of(job), by, now)
    if RUNS in settings:
        set_run_schedule(job, run_timetable(job), by, now)
    if changed:
        audit.record(
            by,
            "job.defaults",
            f"job {job.name}",
            was={column: was[column] for column in sorted(changed)},
            now={column: getattr(job, column) for column in sorted(changed)},
        )
    return bool(changed)
