"""Parse the `_metadata` of Apache Flink's checkpoints and savepoints: the operators, and all files that they need.

Versions 3 to 6 of the format (Flink 1.11 to 2.x). All numbers are big-endian. A text is its length in two bytes, then
UTF-8 (Java's variant, which differs only for NUL and characters beyond the first plane).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MAGIC = b"\x49\x60\x67\x2d"
VERSIONS = range(3, 7)

_MASTER_STATE = 0xC96B1696
_SAVEPOINT_TYPE = b"org.apache.flink.runtime.checkpoint.SavepointType"
_DEEPEST = 50  # limit of nested handles; a change log contains handles, but no change logs

# The format's numbers for handles of state.
_NONE, _BYTES, _FILE, _KEY_GROUPS, _OPERATOR, _INCREMENTAL, _RELATIVE = range(7)
_SAVEPOINT_KEY_GROUPS, _CHANGELOG, _CHANGELOG_BYTES, _CHANGELOG_FILES, _INCREMENTAL_2, _KEY_GROUPS_2 = range(7, 13)
_CHANGELOG_FILES_2, _CHANGELOG_2, _SEGMENT, _EMPTY_SEGMENT, _MERGED_OPERATOR = range(13, 18)
# The format's numbers for merged handles of in-flight data (from version 6 on).
_MERGED_CHANNELS = (3, 4)


class NotFlinkMetadata(ValueError):
    """Raised for content that is not Flink's or has a newer format. The snapshot itself may be intact."""


class CutShort(NotFlinkMetadata):
    """Raised for content that ends too early: the snapshot cannot be restored."""


@dataclass(frozen=True)
class NeededFile:
    """A file that the snapshot needs.

    `location` is relative to the snapshot's directory, or a complete URI. `size` is in bytes; a shared file has at
    least that size.
    """

    location: str
    size: int
    relative: bool
    shared: bool = False

    def fits(self, size: int) -> bool:
        return size >= self.size if self.shared else size == self.size


@dataclass(frozen=True)
class FlinkOperator:
    """An operator. `id`: 32 hexadecimal digits. `name` and `uid` are "" in formats without them (before Flink 2.1)."""

    id: str
    name: str
    uid: str
    parallelism: int
    max_parallelism: int


@dataclass(frozen=True)
class FlinkMetadata:
    """The content of `_metadata`. `is_savepoint` is None in formats without it (before Flink 1.15)."""

    version: int
    checkpoint_id: int
    operators: tuple[FlinkOperator, ...]
    files: tuple[NeededFile, ...]
    is_savepoint: bool | None


def parse(content: bytes) -> FlinkMetadata:
    """Parse the content of a `_metadata` file. Raises NotFlinkMetadata, CutShort."""
    if content[:4] != MAGIC:
        raise NotFlinkMetadata("it was not written by Flink")
    return _Reader(content).metadata()


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = len(MAGIC)
        self._files: dict[NeededFile, None] = {}
        self._depth = 0
        self._version = self._int()
        if self._version not in VERSIONS:
            known = f"{VERSIONS[0]} to {VERSIONS[-1]}"
            raise NotFlinkMetadata(
                f"it has version {self._version} of Flink's format, but only versions {known} can be read"
            )

    def metadata(self) -> FlinkMetadata:
        checkpoint_id = self._long()
        for _ in self._times():
            self._master_state()
        operators = tuple(self._operator() for _ in self._times())
        rest = self._content[self._at :]
        is_savepoint = None if self._version < 4 else _SAVEPOINT_TYPE in rest
        if is_savepoint is not None and not rest.startswith(b"\xac\xed"):
            raise CutShort("the properties at its end are truncated")
        return FlinkMetadata(self._version, checkpoint_id, operators, tuple(self._files), is_savepoint)

    def _master_state(self) -> None:
        if self._int() & 0xFFFFFFFF != _MASTER_STATE:
            raise self._unreadable()
        self._bytes()

    def _operator(self) -> FlinkOperator:
        name, uid = (self._text(), self._text()) if self._version >= 5 else ("", "")
        lower, upper = self._take(8), self._take(8)
        parallelism, max_parallelism = self._int(), self._int()
        self._stream()  # the state of the operator's coordinator
        subtasks = self._int()
        for _ in range(subtasks):  # -1: the operator has finished
            if self._int() >= 0:  # a negative number: the subtask has finished
                self._subtask()
        return FlinkOperator((lower + upper).hex(), name, uid, parallelism, max_parallelism)

    def _subtask(self) -> None:
        for _managed_then_raw in range(2):
            if self._int():
                self._operator_state()
        for _managed_then_raw in range(2):
            self._keyed()
        for _input_then_output in range(2):
            for _ in self._times():
                self._channel()

    def _operator_state(self) -> None:
        kind = self._byte()
        if kind == _NONE:
            return
        if kind not in (_OPERATOR, _MERGED_OPERATOR):
            raise self._unreadable()
        for _ in self._times():
            self._text()
            self._byte()
            self._longs()
        if kind == _MERGED_OPERATOR:
            self._text()
            self._text()
            self._byte()
        self._stream()

    def _channel(self) -> None:
        merged = self._version >= 6 and self._byte() in _MERGED_CHANNELS
        self._int()
        if merged:
            self._long()
            self._stream()
            self._bytes()
            return
        self._int()
        self._int()
        self._longs()
        self._long()
        self._stream()

    # --- keyed state

    def _keyed(self) -> None:
        kind = self._byte()
        if kind == _NONE:
            return
        read = self._keyed_kinds().get(kind)
        self._depth += 1
        if read is None or self._depth > _DEEPEST:
            raise self._unreadable()
        read(kind)
        self._depth -= 1

    def _keyed_kinds(self) -> dict[int, Callable[[int], None]]:
        return {
            _KEY_GROUPS: self._key_groups,
            _KEY_GROUPS_2: self._key_groups,
            _SAVEPOINT_KEY_GROUPS: self._key_groups,
            _INCREMENTAL: self._incremental,
            _INCREMENTAL_2: self._incremental,
            _CHANGELOG: self._changelog,
            _CHANGELOG_2: self._changelog,
            _CHANGELOG_BYTES: self._changelog_bytes,
            _CHANGELOG_FILES: self._changelog_files,
            _CHANGELOG_FILES_2: self._changelog_files,
        }

    def _key_groups(self, kind: int) -> None:
        self._int()
        self._longs()
        self._stream()
        if kind == _KEY_GROUPS_2:
            self._text()

    def _incremental(self, kind: int) -> None:
        self._long()
        self._text()
        self._key_range()
        if kind == _INCREMENTAL_2:
            self._long()
        self._stream()
        for _shared_then_private in range(2):
            for _ in self._times():
                self._text()
                self._stream()
        if kind == _INCREMENTAL_2:
            self._text()

    def _changelog(self, kind: int) -> None:
        self._key_range()
        self._long()
        for _materialized_then_changes in range(2):
            for _ in self._times():
                self._keyed()
        self._long()
        if kind == _CHANGELOG_2:
            self._long()
        self._text()

    def _changelog_bytes(self, kind: int) -> None:
        self._key_range()
        self._long()
        self._long()
        for _ in self._times():
            self._int()
            self._bytes()
        self._text()

    def _changelog_files(self, kind: int) -> None:
        self._key_range()
        for _ in self._times():
            self._long()
            self._stream(shared=True)
        self._long()
        self._long()
        self._text()
        if kind == _CHANGELOG_FILES_2:
            self._text()

    def _key_range(self) -> None:
        self._int()
        self._int()

    # --- streams of bytes

    def _stream(self, *, shared: bool = False) -> None:
        match self._byte():
            case kind if kind in (_NONE, _EMPTY_SEGMENT):
                return
            case kind if kind == _BYTES:
                self._text()
                self._bytes()
            case kind if kind == _FILE:
                size = self._long()
                self._need(NeededFile(self._text(), size, relative=False, shared=shared))
            case kind if kind == _RELATIVE:
                location = self._text()
                self._need(NeededFile(location, self._long(), relative=True, shared=shared))
            case kind if kind == _SEGMENT:
                end = self._long() + self._long()
                self._int()
                self._need(NeededFile(self._text(), end, relative=False, shared=True))
                self._text()
            case kind if kind == _KEY_GROUPS:
                self._key_groups(kind)
            case _:
                raise self._unreadable()

    def _need(self, file: NeededFile) -> None:
        if not file.location or file.size < 0:
            raise self._unreadable()
        self._files[file] = None

    # --- numbers and texts

    def _take(self, count: int) -> bytes:
        if count < 0:
            raise self._unreadable()
        taken = self._content[self._at : self._at + count]
        if len(taken) < count:
            raise CutShort(f"it is truncated after {len(self._content)} bytes")
        self._at += count
        return taken

    def _byte(self) -> int:
        return self._take(1)[0]

    def _int(self) -> int:
        return int(struct.unpack(">i", self._take(4))[0])

    def _long(self) -> int:
        return int(struct.unpack(">q", self._take(8))[0])

    def _longs(self) -> None:
        self._take(8 * self._int())

    def _bytes(self) -> None:
        self._take(self._int())

    def _text(self) -> str:
        (length,) = struct.unpack(">H", self._take(2))
        return self._take(length).decode("utf-8", errors="replace")

    def _times(self) -> Iterator[int]:
        """Read a number, and return an iterator of this length.

        A damaged number needs no limit: each item reads bytes, so the end of the file stops the loop.
        """
        count = self._int()
        if count < 0:
            raise self._unreadable()
        return iter(range(count))

    def _unreadable(self) -> NotFlinkMetadata:
        return NotFlinkMetadata(f"it makes no sense near its byte {self._at}")
