"""Scanning a root: bounded steps, continued anywhere, and problems that are named while the rest continues."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from checkpointing.storage.errors import AccessDenied
from checkpointing.watched.scanning import MOST_LOCATIONS, PASS_EVERY_MS, RootMissing, Scan, advance
from tests.checkpointing.watched.locations import START_MS, CountedFiles, Location

NOW_MS = START_MS + 3_600_000


def step(scan: Scan, root: Path, listings: int = 1000, files: CountedFiles | None = None, now_ms: int = NOW_MS) -> Scan:
    """Take a step, and pass the result through the row that another worker reads."""
    left = iter(range(listings))
    after = advance(scan, str(root), files or CountedFiles(), now_ms, lambda: next(left, None) is not None)
    return Scan.from_row(json.loads(json.dumps(after.as_row())))


def ids(scan: Scan) -> dict[str, str]:
    return {path: found.query_id for path, found in scan.found.items()}


def codes(scan: Scan) -> list[str]:
    return [problem["code"] for problem in scan.problems]


def test_locations_are_found_at_any_depth_and_nothing_inside_them_is_visited(tmp_path: Path) -> None:
    locations = {name: Location(tmp_path / name).run(0, 2) for name in ("orders", "team/a/clicks", "team/b")}
    locations["orders"].write("state/0/1/1.delta", "x")
    Location(tmp_path / "orders/inner")
    (tmp_path / "table/date=2026-11-26").mkdir(parents=True)
    (tmp_path / "table/_delta_log").mkdir()
    files = CountedFiles()
    scan = step(Scan({}), tmp_path, files=files)
    assert ids(scan) == {name: location.id for name, location in locations.items()}
    assert (scan.passes, scan.position) == (1, None)
    assert not [path for path in files.requests if "date=" in path or "_delta_log" in path or "orders/" in path[:-9]]


def test_the_root_may_be_a_location(tmp_path: Path) -> None:
    location = Location(tmp_path).run(0, 0)
    scan = step(Scan({}), tmp_path)
    assert ids(scan) == {"": location.id}
    assert ids(step(scan, tmp_path, now_ms=NOW_MS + PASS_EVERY_MS)) == {"": location.id}


@pytest.mark.parametrize("listings", [1, 2, 3, 7])
def test_a_scan_in_small_steps_finds_the_same_and_each_step_is_bounded(tmp_path: Path, listings: int) -> None:
    chosen = random.Random(7)
    names = {
        "/".join(chosen.choice("abc") for _ in range(chosen.randint(1, 5))) + f"/q{number}" for number in range(30)
    }
    for name in names:
        Location(tmp_path / name)
    scan = Scan({})
    for steps in count():
        files = CountedFiles()
        scan = step(scan, tmp_path, listings, files)
        # The directories on the way to the position are listed again, and `metadata` is read.
        assert len(files.requests) <= 2 * listings + 7
        if scan.position is None:
            break
        assert steps < 500
    assert set(scan.found) == names
    assert steps > 3 or listings == 7


def test_a_pass_finds_what_was_added_and_does_not_read_known_locations_again(tmp_path: Path) -> None:
    Location(tmp_path / "a")
    scan = step(Scan({}), tmp_path)
    added = Location(tmp_path / "b")
    files = CountedFiles()
    assert step(scan, tmp_path, files=files, now_ms=NOW_MS + PASS_EVERY_MS - 1) == scan
    assert files.requests == []
    scan = step(scan, tmp_path, files=files, now_ms=NOW_MS + PASS_EVERY_MS)
    assert ids(scan)["b"] == added.id
    assert files.requests == [str(tmp_path), f"{tmp_path}/b", f"{tmp_path}/b/metadata"]


def test_a_directory_that_vanishes_during_the_scan_stops_nothing(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        Location(tmp_path / name)

    class Vanishing(CountedFiles):
        def entries(self, path: str):  # type: ignore[no-untyped-def]
            found = super().entries(path)
            if path == str(tmp_path):
                for file in sorted((tmp_path / "b").rglob("*"), reverse=True):
                    file.unlink() if file.is_file() else file.rmdir()
                (tmp_path / "b").rmdir()
            return found

    scan = step(Scan({}), tmp_path, files=Vanishing())
    assert sorted(scan.found) == ["a", "c"]
    assert scan.problems == ()


def test_an_unreadable_directory_is_named_and_the_others_are_found(tmp_path: Path) -> None:
    good = Location(tmp_path / "good")
    Location(tmp_path / "half").write("metadata", '{"id": "12')
    Location(tmp_path / "text").write("metadata", '{"id": "<b>no id</b>"}')
    Location(tmp_path / "deep").write("metadata", "[" * 90_000)
    copy = Location(tmp_path / "z-copy")
    copy.write("metadata", json.dumps({"id": good.query_id}))
    Location(tmp_path / "bad\nname")
    (tmp_path / "link").symlink_to(tmp_path / "good")

    class Guarded(CountedFiles):
        def entries(self, path: str):  # type: ignore[no-untyped-def]
            if path.endswith("/closed"):
                raise AccessDenied(f"{path}: the storage refuses access (Permission denied)")
            return super().entries(path)

    (tmp_path / "closed").mkdir()
    scan = step(Scan({}), tmp_path, files=Guarded())
    assert ids(scan) == {"good": good.id}
    damaged = ["imports.metadata-damaged"] * 3
    assert sorted(codes(scan)) == [*damaged, "watched.bad-name", "watched.copy", "watched.not-readable"]


def test_a_root_that_is_missing_or_became_empty_proves_nothing_about_its_queries(tmp_path: Path) -> None:
    with pytest.raises(RootMissing):
        step(Scan({}), tmp_path / "missing")
    Location(tmp_path / "mount/a")
    scan = step(Scan({}), tmp_path / "mount")
    (tmp_path / "mount").rename(tmp_path / "elsewhere")
    (tmp_path / "mount").mkdir()
    with pytest.raises(RootMissing):
        step(scan, tmp_path / "mount", now_ms=NOW_MS + PASS_EVERY_MS)


def test_the_number_of_locations_is_limited(tmp_path: Path) -> None:
    Location(tmp_path / "a")
    scan = step(Scan({}), tmp_path)
    full = {f"other/{number}": replace(scan.found["a"], query_id=f"{number:032x}") for number in range(MOST_LOCATIONS)}
    after = step(Scan(full), tmp_path)
    assert "a" not in after.found
    assert codes(after) == ["watched.too-many"]


def test_copies_in_savepoints_are_left_out(tmp_path: Path) -> None:
    location = Location(tmp_path / "savepoints/query").run(0, 0)
    Location(tmp_path / "savepoints/savepoint-0a1b2c-0123456789ab/_").run(0, 0)
    assert ids(step(Scan({}), tmp_path)) == {"savepoints/query": location.id}


def test_locations_of_waymark_itself_are_left_out(tmp_path: Path) -> None:
    Location(tmp_path / "own").write("timelines", "[]")
    assert step(Scan({}), tmp_path).found == {}
