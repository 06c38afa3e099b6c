"""Rounds of faults on a running job with continuous input, and the checks after each round."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.faults import Damage, Fault, Target
from tests.waiting import eventually

RECOVERY_LIMIT_S = 180.0
_PAUSE_S = 0.2
_ROWS_PER_FILE = 20

ReadIds = Callable[[], list[int]]


class DuplicateRows(AssertionError):
    """The result contains a row more than once."""


@dataclass
class Feeder:
    """Writes files of rows with ascending ids.

    One row in ten repeats an earlier one. The job can recognize it only by its state.
    """

    directory: Path
    chance: random.Random
    ids: int = 0
    _files: Iterator[int] = field(default_factory=itertools.count)

    def feed(self) -> None:
        fresh = list(range(self.ids, self.ids + _ROWS_PER_FILE))
        repeated = [self.chance.randrange(self.ids) for _ in range(_ROWS_PER_FILE // 10)] if self.ids else []
        number = next(self._files)
        unfinished = self.directory / f".{number}"
        lines = (json.dumps({"id": each, "word": f"w{each % 7}"}) + "\n" for each in (*fresh, *repeated))
        unfinished.write_text("".join(lines))
        unfinished.rename(self.directory / f"{number:06}.json")
        self.ids += _ROWS_PER_FILE

    @contextmanager
    def feeding(self) -> Iterator[None]:
        over = threading.Event()

        def go_on() -> None:
            while not over.wait(_PAUSE_S):
                self.feed()

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def run_rounds(faults: list[Fault], target: Target, feeder: Feeder, read: ReadIds, say: Callable[[str], None]) -> None:
    """Raise AssertionError if a row is duplicated or late, or if the wrong state was restored."""
    with feeder.feeding():
        for number, fault in enumerate(faults, 1):
            _round(number, fault, target, feeder, read, say)
    feeder.feed()
    _await_rows(feeder.ids, read)
    assert Counter(read()) == Counter(range(feeder.ids))
    say(f"{feeder.ids} rows, each exactly once, after {len(faults)} faults")


def _round(
    number: int, fault: Fault, target: Target, feeder: Feeder, read: ReadIds, say: Callable[[str], None]
) -> None:
    job, name = target.job, fault.__name__.replace("_", " ")
    eventually("the job runs", job.is_running, RECOVERY_LIMIT_S)
    before = job.completed_id()
    eventually(f"two more checkpoints before: {name}", lambda: job.completed_id() >= before + 2, RECOVERY_LIMIT_S)
    threading.Event().wait(target.chance.uniform(0, 1.5))  # a random moment that depends only on the seed
    attempt, started = job.record()["attempt"], time.monotonic()
    found = fault(target)
    fed = feeder.ids
    if found.restarts:
        eventually(f"another attempt after: {name}", lambda: job.record()["attempt"] > attempt, RECOVERY_LIMIT_S)
    _await_rows(fed, read)
    eventually("the job runs", job.is_running, RECOVERY_LIMIT_S)
    source = _source(job.record())
    _check_source(source, found)
    duration = time.monotonic() - started
    say(f"round {number}: {name}{' (' + found.how + ')' if found.how else ''}: {duration:.1f} s, from {source}")


def _await_rows(ids: int, read: ReadIds) -> None:
    """Wait until the result has all rows. Fail if a row is there twice at any moment."""

    def all_there() -> bool:
        counts = Counter(read())
        double = [row for row, count in counts.items() if count > 1]
        if double:
            raise DuplicateRows(f"{len(double)} rows are there more than once, such as {sorted(double)[:10]}")
        return all(row in counts for row in range(ids))

    eventually(f"{ids} rows", all_there, RECOVERY_LIMIT_S)


def _source(record: dict[str, object]) -> str:
    return str(record.get("local_directory") or record.get("restored_location") or "nothing")


def _check_source(source: str, found: Damage) -> None:
    assert source != "nothing" or not found.restarts, "the job started empty, and it had state"
    assert Path(source.removeprefix("file:")) not in found.paths, f"restored from {source}: damaged"
