"""The settings of jobs in entries: labels, automation, schedules and retention, as the forms of a job read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.as_code.base import Plan, Values
from dashboard.as_code.form_values import as_query, export_value, labels_text
from dashboard.as_code.lines import Entry
from dashboard.forms.automation import AutomationForm
from dashboard.forms.retention import RetentionForm
from monitoring.job_defaults import OWN, RUNS, SAVEPOINTS, SETTINGS, is_own
from monitoring.models import Job
from monitoring.savepoints.schedule import put_schedule

# Pauses do not belong to the configuration.
_PAUSE = ("automation_paused", "automation_note", "pause_lasts")
_KEYS = {"oldest_state_s": "oldest_state", "savepoints_kept_s": "savepoints_kept_for"}
_FIRST = ("labels", "auto_restart")
_GROUPS = {
    **dict.fromkeys(("savepoint_schedule", "savepoint_quiet", "savepoint_time_zone"), SAVEPOINTS),
    **dict.fromkeys(("run_schedule", "run_time_zone"), RUNS),
}


def key_of(field: str) -> str:
    return _KEYS.get(field, field)


def _fields() -> list[str]:
    """Return the fields of a job's settings, in the order of the export."""
    automation = [name for name in AutomationForm.Meta.fields if name not in (*_FIRST, *_PAUSE)]
    return [*_FIRST, *automation, *_GROUPS, *RetentionForm.Meta.fields]


FIELDS = _fields()
KEYS = [key_of(name) for name in FIELDS]
SETTING_OF = {key_of(name): _GROUPS.get(name, name) for name in FIELDS if name != "labels"}


def is_main(key: str) -> bool:
    """Return whether the key names its setting, in contrast to the time zone of a schedule."""
    return key_of(SETTING_OF[key]) == key


def values_of(job: Job) -> Values:
    """Return all settings of a job by key, as formatted text."""
    automation, retention = AutomationForm(instance=job), RetentionForm(instance=job)
    values = {
        key_of(name): export_value(automation if name in automation.fields else retention, name) for name in FIELDS
    }
    return values | {"labels": dict(sorted(job.labels.items()))}


def own_entry(job: Job, blank: Mapping[str, Any]) -> Values:
    """Return the labels and the job's own settings. A missing key has its default value."""
    values = values_of(job)
    entry = {"labels": values["labels"]} if values["labels"] else {}
    for key, setting in SETTING_OF.items():
        is_set = is_main(key) and job.settings_from.get(setting) == OWN
        if is_own(job, setting) and (is_set or values[key] != blank[key]):
            entry[key] = values[key]
    return entry


def shown_values(job: Job) -> Values:
    """Return all settings by key. Those that follow the defaults end with "(default)"."""
    values = values_of(job)
    for key, setting in SETTING_OF.items():
        if is_main(key) and not is_own(job, setting):
            values[key] = f"{'–' if values[key] in (None, '') else values[key]} (default)"
    return values


@dataclass
class SettingsForms:
    """The two forms of a job's settings, with the data of an entry. Both change the same job, which is not saved."""

    automation: AutomationForm
    retention: RetentionForm

    def is_valid(self, made: Plan, entry: Entry) -> bool:
        """Return whether the entry is valid. If so, give the job its values. If not, add its problems to the plan."""
        valid = self.automation.is_valid() & self.retention.is_valid()
        if not valid:
            made.refuse_form(entry, self.automation.errors.as_data() | self.retention.errors.as_data(), key_of)
            return False
        job = self.automation.instance
        put_schedule(job, self.automation.timetable)
        runs = self.automation.run_timetable
        job.run_cron, job.run_time_zone = (runs.expression, runs.zone) if runs else ("", "UTC")
        return True


def forms_of(values: Mapping[str, Any], job: Job, inherited: Job) -> SettingsForms:
    """Return the forms of `job` for the values of an entry.

    A missing setting has the value of `inherited`. A schedule whose other keys are there has the value of a new job.
    """
    explicit = explicit_settings(values)
    blank_values, inherited_values = values_of(Job()), values_of(inherited)
    data = {key: (blank_values if SETTING_OF[key] in explicit else inherited_values)[key] for key in SETTING_OF}
    data |= {"labels": "", **values}
    data["labels"] = labels_text(data["labels"])
    stored = AutomationForm(instance=job)
    by_field: Values = {name: data[key_of(name)] for name in FIELDS} | {name: stored[name].value() for name in _PAUSE}
    query = as_query(by_field)
    return SettingsForms(AutomationForm(query, instance=job), RetentionForm(query, instance=job))


def explicit_settings(keys: Iterable[str]) -> set[str]:
    """Return the settings that an entry with these keys sets itself."""
    return {SETTING_OF[key] for key in keys if key in SETTING_OF}


def columns_of(settings: Iterable[str]) -> list[str]:
    return [column for setting in settings for column in SETTINGS[setting]]
