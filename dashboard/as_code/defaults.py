"""Default settings for the jobs that labels choose, such as `env=prod` or `cluster=east`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django import forms

from dashboard.as_code.base import Act, Plan, Section, Values, text_of
from dashboard.as_code.job_settings import KEYS, SETTING_OF, columns_of, explicit_settings, forms_of, is_main, values_of
from dashboard.as_code.lines import Entry
from monitoring import audit
from monitoring.alerts import selector
from monitoring.job_defaults import settings_of_columns
from monitoring.models import Cluster, Job, JobDefault

_HIGHEST = 1000
_PRIORITY = forms.IntegerField(min_value=0, max_value=_HIGHEST)


class Defaults(Section):
    name = "defaults"

    def entries(self) -> list[Values]:
        return [_entry_of(each) for each in JobDefault.objects.order_by("selector")]

    def plan(self, made: Plan, entries: Sequence[Entry]) -> None:
        stored = dict(made.defaults)
        seen: dict[str, int] = {}
        for entry in entries:
            labels = text_of(entry, "labels")
            if made.is_repeated(entry, f"default {labels}", seen):
                continue
            if not made.has_unknown_keys(entry, ("priority", *KEYS)):
                _plan(made, entry, stored.get(labels) or JobDefault(selector=labels))
        for labels, default in stored.items():
            if f"default {labels}" not in seen:
                made.remove(f"default {labels}", _removal(default))


def _plan(made: Plan, entry: Entry, default: JobDefault) -> None:
    before = _entry_of(default) if default.pk else {}
    problems = len(made.problems)
    default.priority = _priority(made, entry)
    _check_selector(made, entry, default.selector)
    values = {key: value for key, value in entry.values.items() if key in SETTING_OF}
    job = Job(cluster=Cluster(), name="job")
    if not forms_of(values, job, Job()).is_valid(made, entry) or len(made.problems) > problems:
        return
    if not values:
        made.refuse(entry, "labels", default.selector, f"the entry has no setting: allowed are {', '.join(SETTING_OF)}")
        return
    default.settings = {column: getattr(job, column) for column in columns_of(sorted(explicit_settings(values)))}
    made.defaults[default.selector] = default

    def save(by: str, now: datetime) -> None:
        default.save()
        action = "default.change" if before else "default.add"
        audit.record(by, action, f"default {default.selector}", was=before, now=_entry_of(default))

    made.add(f"default {default.selector}", before, _entry_of(default), save)


def _entry_of(default: JobDefault) -> Values:
    job = Job(**default.settings)
    settings = settings_of_columns(default.settings)
    values, blank = values_of(job), values_of(Job())
    head: Values = {"labels": default.selector} | ({"priority": default.priority} if default.priority else {})
    own = {key: values[key] for key, setting in SETTING_OF.items() if setting in settings}
    return head | {key: value for key, value in own.items() if value != blank[key] or is_main(key)}


def _priority(made: Plan, entry: Entry) -> int:
    written: Any = entry.values.get("priority")
    try:
        return int(_PRIORITY.clean(0 if written is None else written))
    except forms.ValidationError:
        made.refuse(entry, "priority", written, f"a whole number from 0 to {_HIGHEST} is needed")
        return 0


def _check_selector(made: Plan, entry: Entry, text: str) -> None:
    if not 0 < len(text) <= 500:
        made.refuse(entry, "labels", text, f"write {selector.ALLOWED}")
        return
    try:
        selector.parse(text)
    except selector.BadSelector as bad:
        made.refuse(entry, "labels", text, str(bad).rstrip("."))


def _removal(default: JobDefault) -> Act:
    def remove(by: str, now: datetime) -> None:
        audit.record(by, "default.remove", f"default {default.selector}", was=_entry_of(default))
        default.delete()

    return remove
