"""List, union-list and broadcast state of an operator, as Flink's OperatorStateStore has them.

State belongs to a subtask, not to a key. When the operator is restored, it is redistributed:

    list        stays in its subtask; with another parallelism all elements, in the subtasks' order, are divided into
              runs of equal length
    union list  every subtask gets the elements of all, also with the same parallelism
    broadcast   every subtask gets a copy: subtask i the copy of subtask i modulo the old parallelism

Values are JSON values and are stored as copies. A read returns a copy, before a restore and after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from checkpointing.state.values import json_copy

VERSION = 1


class OperatorStateUnusable(Exception):
    """Stored operator state cannot be read. The text says where it comes from and what is wrong."""


class StateMode(Enum):
    """How a state is redistributed. Flink: SPLIT_DISTRIBUTE, UNION, BROADCAST."""

    LIST = "list"
    UNION_LIST = "union-list"
    BROADCAST = "broadcast"


@dataclass
class _Entry:
    """One named state. `elements` of a broadcast state are pairs of key and value."""

    name: str
    mode: StateMode
    elements: list[Any] = field(default_factory=list)


class ListState:
    """A list state: elements in the order in which they were added."""

    def __init__(self, entry: _Entry) -> None:
        self._entry = entry

    def get(self) -> list[Any]:
        return [self._json_copy(element) for element in self._entry.elements]

    def add(self, element: Any) -> None:
        self._entry.elements.append(self._json_copy(element))

    def add_all(self, elements: Iterable[Any]) -> None:
        self._entry.elements.extend([self._json_copy(element) for element in elements])

    def update(self, elements: Iterable[Any]) -> None:
        """Replace all elements by `elements`."""
        self._entry.elements[:] = [self._json_copy(element) for element in elements]

    def clear(self) -> None:
        self._entry.elements.clear()

    def _json_copy(self, element: Any) -> Any:
        return json_copy(element, f"{self._entry.mode.value} state {self._entry.name!r}")


class BroadcastState:
    """A small map that should be the same in every subtask. A key is any value that JSON can represent."""

    def __init__(self, entry: _Entry) -> None:
        self._entry = entry

    def get(self, key: Any, default: Any = None) -> Any:
        place = self._place(key)
        return default if place is None else self._json_copy(self._entry.elements[place][1])

    def put(self, key: Any, value: Any) -> None:
        pair = [self._json_copy(key), self._json_copy(value)]
        place = self._place(key)
        if place is None:
            self._entry.elements.append(pair)
        else:
            self._entry.elements[place] = pair

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        for key, value in entries.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        """Remove an entry. A missing one is not an error."""
        place = self._place(key)
        if place is not None:
            del self._entry.elements[place]

    def contains(self, key: Any) -> bool:
        return self._place(key) is not None

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter([(self._json_copy(key), self._json_copy(value)) for key, value in self._entry.elements])

    def clear(self) -> None:
        self._entry.elements.clear()

    def _place(self, key: Any) -> int | None:
        """Return the index of a key. Keys are compared as JSON, so 1, 1.0 and true differ."""
        wanted = _canonical(self._json_copy(key))
        return next((n for n, (each, _) in enumerate(self._entry.elements) if _canonical(each) == wanted), None)

    def _json_copy(self, value: Any) -> Any:
        return json_copy(value, f"broadcast state {self._entry.name!r}")


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


class OperatorStateStore:
    """The operator state of one subtask. A name always has the same mode."""

    def __init__(self, entries: Iterable[_Entry] = ()) -> None:
        self._entries = {entry.name: entry for entry in entries}

    def list_state(self, name: str) -> ListState:
        return ListState(self._entry(name, StateMode.LIST))

    def union_list_state(self, name: str) -> ListState:
        return ListState(self._entry(name, StateMode.UNION_LIST))

    def broadcast_state(self, name: str) -> BroadcastState:
        return BroadcastState(self._entry(name, StateMode.BROADCAST))

    @property
    def entries(self) -> Mapping[str, _Entry]:
        """Return the states by name, in the order of first use."""
        return self._entries

    def _entry(self, name: str, mode: StateMode) -> _Entry:
        if not isinstance(name, str) or not name:
            raise ValueError(f"name: {name!r} is not allowed; the name of a {mode.value} state is a non-empty string")
        entry = self._entries.setdefault(name, _Entry(name, mode))
        if entry.mode is not mode:
            raise ValueError(f"operator state {name!r} is a {entry.mode.value} state, not a {mode.value} state")
        return entry


@dataclass(frozen=True)
class OperatorStateContext:
    """The stores of all subtasks of an operator that runs in one process.

    `is_restored`: this is the first use after the state was restored from a snapshot or an earlier run.
    """

    stores: tuple[OperatorStateStore, ...]
    is_restored: bool = False

    @property
    def parallelism(self) -> int:
        return len(self.stores)

    def subtask(self, index: int) -> OperatorStateStore:
        if not 0 <= index < self.parallelism:
            raise IndexError(f"subtask {index} does not exist: there are {self.parallelism}, counted from 0")
        return self.stores[index]

    def list_state(self, name: str) -> ListState:
        return self._only_store().list_state(name)

    def union_list_state(self, name: str) -> ListState:
        return self._only_store().union_list_state(name)

    def broadcast_state(self, name: str) -> BroadcastState:
        return self._only_store().broadcast_state(name)

    def _only_store(self) -> OperatorStateStore:
        if self.parallelism != 1:
            raise ValueError(f"there are {self.parallelism} subtasks; choose one with context.subtask(index)")
        return self.stores[0]


def empty_stores(parallelism: int) -> tuple[OperatorStateStore, ...]:
    return tuple(OperatorStateStore() for _ in range(parallelism))


def checked_parallelism(parallelism: object) -> int:
    if not isinstance(parallelism, int) or isinstance(parallelism, bool) or parallelism < 1:
        raise ValueError(f"parallelism: a whole number of at least 1 is expected, not {parallelism!r}")
    return parallelism


# --- restoring -------------------------------------------------------------------------------------------------------


def restored(stores: Sequence[OperatorStateStore], parallelism: int) -> tuple[OperatorStateStore, ...]:
    """Return the stores of `parallelism` subtasks, made from the stored ones, which are not changed."""
    modes = {name: entry.mode for store in stores for name, entry in store.entries.items()}
    shares = {name: _shares(name, mode, stores, parallelism) for name, mode in modes.items()}
    return tuple(
        OperatorStateStore(_Entry(name, mode, json_copy(shares[name][index], name)) for name, mode in modes.items())
        for index in range(parallelism)
    )


def _shares(name: str, mode: StateMode, stores: Sequence[OperatorStateStore], parallelism: int) -> list[list[Any]]:
    """Return the elements of each new subtask."""
    old = [store.entries[name].elements if name in store.entries else [] for store in stores]
    if mode is StateMode.UNION_LIST:
        return [[element for elements in old for element in elements]] * parallelism
    if len(old) == parallelism:
        return old
    if mode is StateMode.BROADCAST:
        return [old[index % len(old)] for index in range(parallelism)]
    return _split_evenly([element for elements in old for element in elements], parallelism)


def _split_evenly(elements: list[Any], parallelism: int) -> list[list[Any]]:
    """Divide the elements into runs of equal length. The first ones have one more if the number cannot be divided."""
    length, longer = divmod(len(elements), parallelism)
    ends = [(index + 1) * length + min(index + 1, longer) for index in range(parallelism)]
    return [elements[start:end] for start, end in zip([0, *ends], ends, strict=False)]


# --- written form ----------------------------------------------------------------------------------------------------


def to_plain(stores: Sequence[OperatorStateStore]) -> dict[str, Any]:
    """Return JSON values, without empty states.

    The form is `{"version": 1, "subtasks": [{name: {"mode": …, "elements": […]}}]}`.

    Raise ValueError if a name has different modes in two subtasks.
    """
    modes: dict[str, StateMode] = {}
    for store in stores:
        for name, entry in store.entries.items():
            if modes.setdefault(name, entry.mode) is not entry.mode:
                raise ValueError(
                    f"operator state {name!r} must have the same mode in all subtasks; it is {modes[name].value} in "
                    "only some"
                )
    return {"version": VERSION, "subtasks": [_plain_store(store) for store in stores]}


def _plain_store(store: OperatorStateStore) -> dict[str, Any]:
    return {
        name: {"mode": entry.mode.value, "elements": entry.elements}
        for name, entry in store.entries.items()
        if entry.elements
    }


def from_plain(value: Any, where: str) -> tuple[OperatorStateStore, ...]:
    """Read the stored form. Raise OperatorStateUnusable, which names `where`, for anything else."""
    version = value.get("version") if isinstance(value, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise OperatorStateUnusable(f"{where}: operator state of version {version}; this release reads up to {VERSION}")
    try:
        if version != VERSION or not value["subtasks"]:
            raise KeyError("version")
        return tuple(
            OperatorStateStore(_entry_of(name, plain) for name, plain in subtask.items())
            for subtask in value["subtasks"]
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise OperatorStateUnusable(f"{where}: this is not operator state: {str(value)[:80]}") from error


def _entry_of(name: str, plain: Mapping[str, Any]) -> _Entry:
    mode, elements = StateMode(plain["mode"]), plain["elements"]
    if not isinstance(elements, list):
        raise TypeError(name)
    if mode is StateMode.BROADCAST and not all(isinstance(pair, list) and len(pair) == 2 for pair in elements):
        raise TypeError(name)
    return _Entry(name, mode, elements)


def encode(stores: Sequence[OperatorStateStore]) -> bytes:
    return json.dumps(to_plain(stores), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def decode(content: bytes, where: str) -> tuple[OperatorStateStore, ...]:
    try:
        value = json.loads(content)
    except ValueError as error:
        raise OperatorStateUnusable(f"{where}: cut off or damaged: {error}") from error
    return from_plain(value, where)
