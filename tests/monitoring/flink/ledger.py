"""A reader of LedgerJob's output. It checks that every number is there once and each key's count has no gap."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

SPLITS = 2


@dataclass(frozen=True, order=True)
class Entry:
    number: int
    key: int
    count: int
    version: str


class Ledger:
    """The committed files below `directory`.

    The names of uncommitted files begin with a dot. Readers of Flink's file sink ignore such files.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def entries(self) -> list[Entry]:
        lines = (line for path in self.directory.glob("part-*") for line in path.read_text().splitlines())
        return sorted(
            Entry(int(number), int(key), int(count), text) for number, key, count, text in map(str.split, lines)
        )

    def versions(self) -> set[str]:
        return {entry.version for entry in self.entries()}

    def assert_exact(self) -> list[Entry]:
        """Return the entries. Assert that both splits of the source have all numbers from the first on, each once.

        Also assert that the counts of each key are 1, 2, 3 …
        """
        entries = self.entries()
        numbers = [entry.number for entry in entries]
        assert len(numbers) == len(set(numbers)), "a number is there twice"
        begun = [after for before, after in pairwise([-2, *numbers]) if after != before + 1]
        assert begun[0] == 0
        assert len(begun) <= SPLITS, f"numbers are missing: there are those from {begun}"
        counts: dict[int, list[int]] = defaultdict(list)
        for entry in entries:
            assert entry.key == entry.number % 1000
            counts[entry.key].append(entry.count)
        wrong = {key: found for key, found in counts.items() if sorted(found) != list(range(1, len(found) + 1))}
        assert not wrong, f"counts of keys are wrong: {wrong}"
        return entries
