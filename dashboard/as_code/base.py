"""The interface of a section of the YAML, and the plan that sections fill."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar

from django.db.models import Model
from django.forms import BaseForm

from dashboard.access.roles import Role
from dashboard.as_code.lines import Entry, Problem
from monitoring.models import Channel, Cluster, Job, JobDefault

Values = dict[str, Any]
Act = Callable[[str, datetime], object]  # (actor, now); the result is ignored
JobKey = tuple[str, str]  # the names of a cluster and a job


@dataclass(frozen=True)
class Change:
    """A change of one thing. `fields` has the old and the new value by key."""

    what: str
    verb: str  # "add", "change" or "remove"
    fields: dict[str, tuple[Any, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    change: Change
    act: Act


@dataclass
class Plan:
    """The changes of an import for a user with a role.

    `removals` are for what is stored and not in the text. `final` are acts after all steps. The dictionaries have the
    things as they are after the import; sections replace them and add new ones, which are not saved.
    """

    role: Role
    problems: list[Problem] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    removals: list[Step] = field(default_factory=list)
    final: list[Act] = field(default_factory=list)
    planned_jobs: set[JobKey] = field(default_factory=set)

    @property
    def changes(self) -> list[Change]:
        return [step.change for step in self.steps]

    @property
    def is_empty(self) -> bool:
        return not self.steps

    @cached_property
    def clusters(self) -> dict[str, Cluster]:
        return {cluster.name: cluster for cluster in Cluster.objects.filter(archived_at=None)}

    @cached_property
    def jobs(self) -> dict[JobKey, Job]:
        stored = Job.objects.select_related("cluster").filter(cluster__archived_at=None)
        return {(job.cluster.name, job.name): job for job in stored.order_by("cluster__name", "name")}

    @cached_property
    def defaults(self) -> dict[str, JobDefault]:
        return {default.selector: default for default in JobDefault.objects.all()}

    @cached_property
    def channels(self) -> dict[str, Channel]:
        return {channel.name: channel for channel in Channel.objects.select_related("escalate_to")}

    def add(self, what: str, before: Mapping[str, Any], after: Mapping[str, Any], act: Act) -> None:
        """Plan `act` if the values differ."""
        keys = [*after, *(key for key in before if key not in after)]
        fields = {key: (before.get(key), after.get(key)) for key in keys if _differs(before.get(key), after.get(key))}
        if fields:
            self.steps.append(Step(Change(what, "change" if before else "add", fields), act))

    def remove(self, what: str, act: Act) -> None:
        self.removals.append(Step(Change(what, "remove"), act))

    def remove_row(self, what: str, row: Model) -> None:
        self.remove(what, lambda by, now: row.delete())

    def refuse(self, entry: Entry, key: str, value: object, why: str) -> None:
        """Add the problem that the value of a key is not allowed."""
        shown = "empty" if value in (None, "") else repr(str(value)[:80])
        self.problems.append(Problem(entry.line_of(key), f"{key} is {shown}: {why}."))

    def refuse_form(self, entry: Entry, errors: Mapping[str, Any], key_of: Callable[[str], str]) -> None:
        """Add the errors of a form. `key_of` returns the key in the entry for a field of the form."""
        for name, of_field in errors.items():
            key = key_of(name)
            value = entry.values.get(key)
            start = f"{key}: " if value is None else f"{key} is {str(value)[:80]!r}: "
            for error in of_field:
                self.problems += [Problem(entry.line_of(key), f"{start}{message}") for message in error.messages]

    def has_errors(self, entry: Entry, form: BaseForm, key_of: Callable[[str], str]) -> bool:
        """Return whether the form has errors, and add each of them as a problem of the entry."""
        if form.is_valid():
            return False
        self.refuse_form(entry, form.errors.as_data(), key_of)
        return True

    def is_repeated(self, entry: Entry, what: str, seen: dict[str, int]) -> bool:
        if what in seen:
            self.problems.append(Problem(entry.line, f"{what} occurs twice, first in line {seen[what]}."))
            return True
        seen[what] = entry.line
        return False

    def has_unknown_keys(self, entry: Entry, allowed: Iterable[str]) -> bool:
        names = sorted(allowed)
        unknown_keys = [key for key in entry.values if key not in names]
        for key in unknown_keys:
            self.refuse(entry, key, entry.values[key], f"no such key: allowed are {', '.join(names)}")
        return bool(unknown_keys)


class Section(ABC):
    """A kind of thing: a key of the YAML with a list of entries.

    `least` is the role that the pages demand for a change. A section for administrators is exported only to them.
    """

    name: ClassVar[str]
    least: ClassVar[Role] = Role.OPERATOR

    @abstractmethod
    def entries(self) -> list[Values]:
        """Return everything that is stored, in the order of the export, without secrets."""

    @abstractmethod
    def plan(self, made: Plan, entries: Sequence[Entry]) -> None:
        """Add the problems, the steps and the removals of the entries to the plan. Nothing is written."""


def _differs(before: Any, after: Any) -> bool:
    return (before or None) != (after or None) if not isinstance(after, bool) else before != after


def list_of(value: Any) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else [str(value)] if value else []


def text_of(entry: Entry, key: str) -> str:
    """Return a name in an entry, with single spaces, or ""."""
    return " ".join(str(entry.values.get(key) or "").split())
