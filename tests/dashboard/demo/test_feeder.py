from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from checkpointing.clock import ManualClock
from dashboard.demo.feeder import KEPT_S, ROWS, Feeder

YEAR = 250


def flights() -> Iterator[dict[str, Any]]:
    return ({"tailnum": f"N{number}", "time_hour": "2013-12-31T23:00:00Z"} for number in range(YEAR))


def feeder(directory: Path, clock: ManualClock | None = None) -> Feeder:
    made = Feeder(directory, clock or ManualClock(), flights)
    made.resume()
    return made


def rows(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(directory.glob("*.json")) for line in path.read_text().splitlines()]


def test_every_flight_appears_once_with_ids_without_a_gap(tmp_path: Path) -> None:
    fed = feeder(tmp_path)
    for _ in range(3):
        fed.write_file()
    assert [row["id"] for row in rows(tmp_path)] == list(range(YEAR))
    assert [row["tailnum"] for row in rows(tmp_path)] == [flight["tailnum"] for flight in flights()]


def test_feeder_continues_after_a_restart(tmp_path: Path) -> None:
    feeder(tmp_path).write_file()
    feeder(tmp_path).write_file()
    assert [row["id"] for row in rows(tmp_path)] == list(range(2 * ROWS))
    assert rows(tmp_path)[-1]["tailnum"] == f"N{2 * ROWS - 1}"


def test_after_the_year_comes_the_same_year_dated_one_later(tmp_path: Path) -> None:
    fed = feeder(tmp_path)
    for _ in range(4):
        fed.write_file()
    after = rows(tmp_path)[YEAR]
    assert (after["id"], after["tailnum"], after["time_hour"]) == (YEAR, "N0", "2014-12-31T23:00:00Z")
    resumed = feeder(tmp_path).write_file()
    assert json.loads(resumed.read_text().splitlines()[0])["tailnum"] == f"N{ROWS}"


def test_partial_file_is_hidden_and_deleted_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / ".flights-000000000000-100.json.new").write_text('{"id": 0')
    feeder(tmp_path).write_file()
    assert [path.name for path in tmp_path.iterdir()] == ["flights-000000000000-100.json"]


def test_files_older_than_two_days_are_deleted_except_the_newest(tmp_path: Path) -> None:
    clock = ManualClock()
    fed = feeder(tmp_path, clock)
    for path in (fed.write_file(), fed.write_file()):
        os.utime(path, times=(clock.now_ms() / 1000,) * 2)
    clock.advance(KEPT_S - 1)
    fed.delete_old_files()
    assert len(list(tmp_path.iterdir())) == 2
    clock.advance(2)
    fed.delete_old_files()
    assert [path.name for path in tmp_path.iterdir()] == ["flights-000000000100-100.json"]
