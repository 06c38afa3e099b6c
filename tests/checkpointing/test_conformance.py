"""conformance.md and the tests that it names agree."""

from __future__ import annotations

import re
from pathlib import Path

TABLE = Path(__file__).with_name("conformance.md")
_ID = r"[a-zA-Z]\d\d"
_TEST = re.compile(rf"def (test_conformance_({_ID}(?:_(?:to_)?{_ID})*)_\w+)")
_ROW = re.compile(r"^\| ([^|]+) \| `(test_conformance_\w+)` \|$", re.MULTILINE)


def test_the_table_of_covered_behaviours_names_every_test_and_no_other() -> None:
    assert sorted(_ROW.findall(TABLE.read_text())) == covered()


def covered() -> list[tuple[str, str]]:
    """Return pairs of the IDs, as written in the table, and the test's name."""
    texts = [file.read_text() for file in TABLE.parent.glob("*/test_*.py")]
    found = [match for text in texts for match in _TEST.findall(text)]
    return sorted((ids.upper().replace("_TO_", "–").replace("_", ", "), name) for name, ids in found)
