"""Which batch numbers an attempt may use (decision 132), and the durable counter of each job family.

A *family* is a job and all jobs that were ever started from its snapshots. Ranges of one family do not overlap, and an
attempt that restores a snapshot gets its range before it starts. So a sink never sees a number twice with other rows.

A query with the option `waymark.batch-numbers: repeat` keeps its numbers instead. For such queries the counter also
stores the batch to which each restore returned.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from checkpointing.durable_files import write_durably
from checkpointing.ids import is_id
from checkpointing.model.batch_numbers import BatchNumbers
from checkpointing.model.messages import MalformedMessage, from_plain, to_plain

RANGE_SIZE = 10_000
# The gap between the known numbers and the first of a new range. Other attempts may have used numbers in it.
GAP = 1_000_000
# Spark reads some batch numbers as 32-bit integers.
LIMIT = 2**31 - 1
# The driver ends if one of its queries has no more than this many batch numbers left.
SPARE_NUMBERS = 100
# Such a driver reports a failure of this name. The restart strategy does not count it.
NUMBERS_USED_UP = "BatchNumbersUsedUp"

# Several jobs of one family may reserve numbers at the same time, each on another thread.
_reserving = threading.Lock()


class BatchNumbersExhausted(Exception):
    """The family has used almost all numbers that Spark can handle."""


class BatchCounterUnreadable(Exception):
    """The reserved ranges are unknown, because the counter's file is damaged or its name is not valid."""


@dataclass(frozen=True)
class KnownNumbers:
    """The known facts about the numbers that a family has used.

    `counter` is the end of the newest range, None without a counter. `end` is the greatest end of all ranges in
    snapshots and in an attempt's record. `greatest` is the greatest number of a batch.
    """

    counter: int | None
    end: int = 0
    greatest: int = -1

    @property
    def free_from(self) -> int:
        """Return the first number that no attempt has used or may use."""
        if self.counter is not None and self.counter >= self.end and self.counter > self.greatest:
            return self.counter
        return max(self.counter or 0, self.end, self.greatest + 1) + GAP


def next_range(family: str, known: KnownNumbers) -> BatchNumbers:
    first = known.free_from
    if first + RANGE_SIZE > LIMIT:
        raise BatchNumbersExhausted(
            f"The jobs that were started from snapshots of job {family} have used the batch numbers up to {first}. "
            f"Spark allows {LIMIT}. Start a job without a snapshot."
        )
    return BatchNumbers(family, first, first + RANGE_SIZE)


def extended(numbers: BatchNumbers, counter: int | None) -> BatchNumbers | None:
    """Return the range with more numbers at its end, or None if these are not free."""
    if counter != numbers.end or numbers.end + RANGE_SIZE > LIMIT:
        return None
    return replace(numbers, end=numbers.end + RANGE_SIZE)


def must_extend(numbers: BatchNumbers, greatest: int) -> bool:
    """Return whether an attempt whose greatest number is `greatest` needs more numbers soon."""
    return numbers.end - RANGE_SIZE // 2 <= greatest < numbers.end


def is_used_up(end: int, greatest: int) -> bool:
    """Return whether an attempt must end because `greatest` is too near to the end of its range."""
    return greatest >= end - SPARE_NUMBERS


@dataclass(frozen=True)
class Restored:
    """A restore. `batches` is the last batch of each query in the snapshot, `first` the first number of the attempt."""

    first: int
    batches: dict[str, int]

    def is_before(self, batch: int, query: str) -> bool:
        return self.batches.get(query, -1) < batch

    def covers(self, earlier: Restored) -> bool:
        """Return whether this later restore returned at least as far as `earlier` for each query."""
        return not any(earlier.is_before(batch, query) for query, batch in self.batches.items())


@dataclass(frozen=True)
class Counter:
    """The counter of a family. `end` is the end of the newest range.

    `restored` holds the restores, oldest first, without those that a later one covers.
    """

    end: int
    restored: tuple[Restored, ...] = ()

    def after_start(self, numbers: BatchNumbers, batches: Mapping[str, int] | None) -> Counter:
        """Return the counter after an attempt gets `numbers` and restores `batches` (None: it restores nothing)."""
        if batches is None:
            return replace(self, end=numbers.end)
        newest = Restored(numbers.first, dict(batches))
        return Counter(numbers.end, (*(each for each in self.restored if not newest.covers(each)), newest))


class BatchNumberCounters:
    """The counters in `<directory>/<family>.json`: each a Counter as JSON, such as `{"end": 20000, "restored": […]}`.

    All methods block. `confirm_term` is called right before a range counts. If it raises, the counter stays as it was.

    Raises:
        BatchCounterUnreadable, OSError.
        BatchNumbersExhausted: only by `reserve`.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def begin(self, family: str, confirm_term: Callable[[], None]) -> BatchNumbers:
        """Return the range of an attempt without state, whose batches begin at 0."""
        numbers = BatchNumbers(family, 0, RANGE_SIZE)
        with _reserving:
            if self.read(family) is None:
                self._write(family, Counter(numbers.end), confirm_term)
        return numbers

    def reserve(
        self,
        family: str,
        end: int,
        greatest: int,
        confirm_term: Callable[[], None],
        restored: Mapping[str, int] | None = None,
    ) -> BatchNumbers:
        """Reserve a range for an attempt that is about to start; KnownNumbers explains `end` and `greatest`.

        `restored` is the last batch of each query in the snapshot that the attempt restores, if it restores one.
        """
        with _reserving:
            counter = self.read(family)
            numbers = next_range(family, KnownNumbers(None if counter is None else counter.end, end, greatest))
            self._write(family, (counter or Counter(0)).after_start(numbers, restored), confirm_term)
        return numbers

    def extend(self, numbers: BatchNumbers, confirm_term: Callable[[], None]) -> BatchNumbers | None:
        """Reserve the numbers behind a range, too. Return None if another attempt has them."""
        with _reserving:
            counter = self.read(numbers.family)
            longer = extended(numbers, None if counter is None else counter.end)
            if counter is not None and longer is not None:
                self._write(numbers.family, counter.after_start(longer, None), confirm_term)
        return longer

    def restored_since(self, family: str, numbers: BatchNumbers | None, batches: Mapping[str, int]) -> dict[str, int]:
        """Return the least restored batch of each query since a snapshot was taken.

        -1 means that a query was started without state. Queries that never returned to a batch before the snapshot are
          left out. `batches` are those of the snapshot, `numbers` the range of its attempt. None counts all known
          restores.
        """
        first = -1 if numbers is None else numbers.first
        counter = self.read(family) or Counter(0)
        later = [each for each in counter.restored if each.first > first]
        return {
            query: min(each.batches.get(query, -1) for each in later)
            for query, batch in batches.items()
            if any(each.is_before(batch, query) for each in later)
        }

    def read(self, family: str) -> Counter | None:
        """Return the family's counter, or None if there is none."""
        path = self._path(family)
        try:
            counter = from_plain(Counter, json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, MalformedMessage) as error:
            raise BatchCounterUnreadable(f"{path}: {error}") from error
        if counter.end < 0:
            raise BatchCounterUnreadable(f"{path}: end: a number is expected, not {counter.end!r}")
        return counter

    def _write(self, family: str, counter: Counter, confirm_term: Callable[[], None]) -> None:
        write_durably(self._path(family), json.dumps(to_plain(counter)), confirm_term)

    def _path(self, family: str) -> Path:
        if not is_id(family):
            raise BatchCounterUnreadable(
                f"the snapshot's batch numbers belong to the job {family[:80]!r}, which is not a job's id"
            )
        return self._directory / f"{family}.json"
