"""What the reader of a snapshot answered, as the State tab shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitoring.models import Job, StateRead, StateReadKind, StateReadState

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
    """How an operator's state lies in its partitions; `rows` where they were counted."""

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
        """The largest partition over the mean of all."""
        return max(self.sizes) * len(self.sizes) / self.total if self.total else None

    @property
    def sentence(self) -> str:
        if self.skew is None:
            return "It is empty."
        largest = max(range(len(self.sizes)), key=self.sizes.__getitem__)
        if self.skew < 1.5:
            return f"Evenly spread: the largest partition, {largest}, has {self.skew:.2f} times the mean."
        return f"Uneven: partition {largest} has {self.skew:.2f} times the mean."

    @property
    def bars(self) -> list[tuple[int, int, float]]:
        """Index, size and percent of the largest, the largest MOST_BARS of them by index."""
        top = max([*self.sizes, 1])
        kept = sorted(range(len(self.sizes)), key=lambda n: -self.sizes[n])[:MOST_BARS]
        return [(int(self.partitions[n]["index"]), self.sizes[n], 100 * self.sizes[n] / top) for n in sorted(kept)]


@dataclass(frozen=True)
class Answer:
    """A question with what came of it, its values as text."""

    read: StateRead

    @property
    def title(self) -> str:
        read = self.read
        where = f"{read.view} of operator {read.operator}" if read.view else "the state"
        match read.kind:
            case StateReadKind.DIFF:
                return f"What changed in {where} from {read.label} to {read.other_label}"
            case StateReadKind.SIZES:
                return f"Rows by partition of {where} in {read.label}"
            case _:
                return f"Keys and values of {where} in {read.label}{self._only}"

    @property
    def _only(self) -> str:
        read = self.read
        wishes = [
            f"{read.key_field} is {read.key_text!r}" if read.key_field else "",
            f"key contains {read.contains!r}" if read.contains else "",
            f"partition {read.partition}" if read.partition is not None else "",
        ]
        told = ", ".join(filter(None, wishes))
        return f" where {told}" if told else ""

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Partition or change, key, map key, and one or two values."""
        answer = self.read.answer or {}
        if self.read.kind == StateReadKind.DIFF:
            return [
                (each["change"], *map(_text, (each["key"], each["map_key"], each["before"], each["after"])))
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


def contents_read(job: Job, snapshot: int) -> StateRead | None:
    """The newest question of what the snapshot holds."""
    return StateRead.objects.filter(job=job, snapshot=snapshot, kind=StateReadKind.LIST).first()


def answers(job: Job, snapshot: int) -> list[Answer]:
    """The newest first."""
    found = StateRead.objects.filter(job=job, snapshot=snapshot).exclude(kind=StateReadKind.LIST)
    return [Answer(read) for read in found[:SHOWN]]


def ahead_of(reads: Sequence[StateRead]) -> int:
    """How many questions are before the oldest of `reads` that waits."""
    waiting = [read for read in reads if read.state == StateReadState.WAITING]
    if not waiting:
        return 0
    open_states = [state for state in StateReadState if state.open]
    return StateRead.objects.filter(state__in=open_states, asked_at__lt=min(r.asked_at for r in waiting)).count()
