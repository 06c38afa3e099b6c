"""Results of reading a snapshot, as the State tab shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from dashboard.language import rendered
from monitoring.models import Job, StateRead, StateReadKind, StateReadState
from monitoring.reasons.columns import stored

SHOWN = 5
_TEXT_LIMIT = 600
MOST_BARS = 256


@dataclass(frozen=True)
class Place:
    """One view of one stateful operator."""

    value: str
    query: str
    operator: int
    view: str
    label: str


def places_of(contents: Mapping[str, Any]) -> Iterator[Place]:
    for number, operator in enumerate(contents.get("keyed", ())):
        for view in operator["views"]:
            label = f"{operator['name']} · {view['name']} ({view['kind']})"
            yield Place(f"{number}:{view['name']}", operator["query"], operator["number"], view["name"], label[:160])


@dataclass(frozen=True)
class Spread:
    """The distribution of an operator's state over its partitions, in bytes, or in rows if they were counted."""

    partitions: Sequence[Mapping[str, Any]]
    unit: str  # "bytes" or "rows"

    @property
    def sizes(self) -> list[int]:
        return [int(each[self.unit] or 0) for each in self.partitions]

    @property
    def total(self) -> int:
        return sum(self.sizes)

    @property
    def skew(self) -> float | None:
        """Return the size of the largest partition divided by the mean."""
        return max(self.sizes) * len(self.sizes) / self.total if self.total else None

    @property
    def sentence(self) -> str:
        if self.skew is None:
            return _("The state is empty.")
        largest = max(range(len(self.sizes)), key=self.sizes.__getitem__)
        found = {"largest": largest, "times": f"{self.skew:.2f}"}
        if self.skew < 1.5:
            return _("Evenly distributed: the largest partition, %(largest)s, is %(times)s times the mean.") % found
        return _("Skewed: partition %(largest)s is %(times)s times the mean.") % found

    @property
    def bars(self) -> list[tuple[int, int, float]]:
        """Return index, size and percentage of the maximum for the MOST_BARS largest partitions, sorted by index."""
        top = max([*self.sizes, 1])
        kept = sorted(range(len(self.sizes)), key=lambda n: -self.sizes[n])[:MOST_BARS]
        return [(int(self.partitions[n]["index"]), self.sizes[n], 100 * self.sizes[n] / top) for n in sorted(kept)]


@dataclass(frozen=True)
class Answer:
    """A request to read state, and its result with all values as text."""

    read: StateRead

    @property
    def title(self) -> str:
        read = self.read
        of_operator = _("%(view)s of operator %(operator)s") % {"view": read.view, "operator": read.operator}
        about = {
            "where": of_operator if read.view else _("the state"),
            "label": rendered(stored(read, "label")),
            "other": rendered(stored(read, "other_label")),
            "only": self._filter_text,
        }
        match read.kind:
            case StateReadKind.DIFF:
                return _("Changes in %(where)s from %(label)s to %(other)s") % about
            case StateReadKind.SIZES:
                return _("Rows by partition of %(where)s in %(label)s") % about
            case _:
                return _("Keys and values of %(where)s in %(label)s%(only)s") % about

    @property
    def _filter_text(self) -> str:
        read = self.read
        wishes = [
            _("%(field)s is %(text)s") % {"field": read.key_field, "text": repr(read.key_text)}
            if read.key_field
            else "",
            _("key contains %(text)s") % {"text": repr(read.contains)} if read.contains else "",
            _("partition %(number)s") % {"number": read.partition} if read.partition is not None else "",
        ]
        wished = ", ".join(filter(None, wishes))
        return _(" where %(wishes)s") % {"wishes": wished} if wished else ""

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows. Rows of a diff are change, key, map key, before and after.

        Other rows are partition, key, map key, value and time of expiry.
        """
        answer = self.read.answer or {}
        if self.read.kind == StateReadKind.DIFF:
            return [
                (_(each["change"]), *map(_text, (each["key"], each["map_key"], each["before"], each["after"])))
                for each in answer.get("sample", ())
            ]
        return [
            (each["partition"], *map(_text, (each["key"], each["map_key"], each["value"])), each["expires_at"])
            for each in answer.get("rows", ())
        ]

    @property
    def has_map_keys(self) -> bool:
        return any(row[2] is not None for row in self.rows)

    @property
    def spread(self) -> Spread | None:
        if self.read.kind != StateReadKind.SIZES or not self.read.answer:
            return None
        return Spread(self.read.answer["partitions"], "rows")


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}…"


def newest_contents_read(job: Job, snapshot: int) -> StateRead | None:
    """Return the newest request for the contents of the snapshot."""
    return StateRead.objects.filter(job=job, snapshot=snapshot, kind=StateReadKind.LIST).first()


def without_values(contents: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of a snapshot without the elements of its operator state, which are the job's data."""
    holders = [
        dict(holder) | {"states": [dict(state) | {"elements": None} for state in holder["states"]]}
        for holder in contents.get("operator_state", ())
    ]
    return dict(contents) | {"operator_state": holders}


def answers(job: Job, snapshot: int) -> list[Answer]:
    """Return the requests about a snapshot with their results, newest first."""
    found = StateRead.objects.filter(job=job, snapshot=snapshot).exclude(kind=StateReadKind.LIST)
    return [Answer(read) for read in found[:SHOWN]]


def count_requests_ahead(reads: Sequence[StateRead]) -> int:
    """Count the open requests that were made before the oldest waiting one of `reads`."""
    waiting = [read for read in reads if read.state == StateReadState.WAITING]
    if not waiting:
        return 0
    open_states = [state for state in StateReadState if state.open]
    return StateRead.objects.filter(state__in=open_states, asked_at__lt=min(r.asked_at for r in waiting)).count()
