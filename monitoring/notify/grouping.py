"""Which notifications go out together. Pure.

What is about one cluster, of one kind of news, and due together is one message. When a channel's limit leaves too few
messages for all groups, the gravest get one each and the last message is a digest of everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

LISTED = 20  # incidents that a message names; of more it says how many


class Gathered(Protocol):
    """What grouping needs to know of a notification."""

    @property
    def group(self) -> tuple[object, ...]: ...

    @property
    def is_critical(self) -> bool: ...


T = TypeVar("T", bound=Gathered)


@dataclass(frozen=True)
class Planned(Generic[T]):
    members: tuple[T, ...]
    is_digest: bool = False


def plan(waiting: Sequence[T], slots: int) -> list[Planned[T]]:
    """At most `slots` messages that together hold all of `waiting`; with no slot none, and all go on waiting."""
    if slots <= 0:
        return []
    groups = _gravest_first(_grouped(waiting))
    if len(groups) <= slots:
        return [Planned(tuple(each)) for each in groups]
    alone, rest = groups[: slots - 1], groups[slots - 1 :]
    return [*(Planned(tuple(each)) for each in alone), Planned(tuple(each for group in rest for each in group), True)]


def _grouped(waiting: Iterable[T]) -> list[list[T]]:
    groups: dict[tuple[object, ...], list[T]] = {}
    for each in waiting:
        groups.setdefault(each.group, []).append(each)
    return list(groups.values())


def _gravest_first(groups: Iterable[list[T]]) -> list[list[T]]:
    """Critical ones first, each group beginning with its gravest; else in the order in which they came."""
    sorted_groups = [sorted(group, key=lambda each: not each.is_critical) for group in groups]
    return sorted(sorted_groups, key=lambda group: not group[0].is_critical)
