"""Logs are read on where reading stopped: appended, rolled, compacted, truncated, damaged, by any worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from checkpointing.eventlogs import reading
from checkpointing.eventlogs.events import BATCHES, News
from checkpointing.eventlogs.reading import DAYS, QUIET_EVERY_MS, QUIET_MS, DirectoryMissing, Logs, advance
from checkpointing.storage.errors import AccessDenied
from tests.checkpointing.eventlogs.logs import (
    RUN,
    START_MS,
    CountedFiles,
    EventLog,
    Json,
    application_end,
    compressed,
    header,
    job_end,
    numbers_of,
    progress,
    started,
    terminated,
    text_of,
    time_of,
)

CODECS = ["", "zstd", "lz4", "snappy"]
NOISE = {"Event": "SparkListenerTaskEnd", "Stage ID": 1, "Task Info": {"x": "y" * 500}}


class Reader:
    """A worker that reads the directory. `stored` is what it would store in the cluster's row, as JSON."""

    def __init__(self, root: Path, stored: str = "{}") -> None:
        self.root, self.stored, self.files = str(root), stored, CountedFiles()
        self.checked: dict[str, int] = {}
        self.now_ms = START_MS + 60_000
        self.news: list[News] = []

    def step(self, may_continue: Callable[[], bool] = lambda: True, *, after_ms: int = 10_000) -> list[News]:
        self.now_ms += after_ms
        logs = Logs.from_row(json.loads(self.stored))
        logs, news = advance(logs, self.root, self.files, self.now_ms, may_continue, self.checked)
        self.stored = json.dumps(logs.as_row())
        self.news += news
        return news

    def steps(self, count: int = 4) -> Reader:
        for _ in range(count):
            self.step()
        return self

    def take_over(self) -> Reader:
        """Return another worker."""
        other = Reader(Path(self.root), self.stored)
        other.news, other.now_ms = self.news, self.now_ms
        return other

    @property
    def batches(self) -> list[int]:
        return list(numbers_of(batch for each in self.news for batch in each.batches))

    @property
    def log(self) -> Json:
        (log,) = json.loads(self.stored)["logs"].values()
        return log

    @property
    def problems(self) -> list[tuple[str, Any]]:
        return [(each["code"], each["args"]) for each in json.loads(self.stored)["problems"]]


@pytest.mark.parametrize("rolling", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_only_what_was_appended_is_read_and_reported_by_any_worker(tmp_path: Path, codec: str, rolling: bool) -> None:
    log = EventLog(tmp_path, codec=codec, rolling=rolling)
    log.append(*header(), started(), NOISE, progress(0), NOISE)
    reader = Reader(tmp_path).steps(2)
    for number in range(1, 9):
        log.append(progress(number), NOISE)
        reader = reader.take_over()
        before = log.path.stat().st_size
        assert reader.step()
        assert not reader.step()
        assert reader.files.read_bytes < before
    assert reader.batches == list(range(9))
    assert reader.news[-1].program == "shop"
    assert reader.news[-1].spark == "4.3.0"
    log.append(terminated(), application_end(START_MS + 20_000))
    log.close()
    reader.steps(3)
    (ended,) = reader.news[-1].queries
    assert (ended["state"], ended["run_id"]) == ("ended", RUN)
    assert reader.log == {"ended": True}
    read = reader.files.read_bytes
    reader.steps()
    assert reader.files.read_bytes == read


@pytest.mark.parametrize("codec", ["", "zstd"])
def test_a_half_written_line_waits_for_its_rest(tmp_path: Path, codec: str) -> None:
    log = EventLog(tmp_path, codec=codec)
    log.append(*header(), progress(0))
    content = compressed(codec, text_of([progress(1)]))
    log.append_bytes(content[:-9])
    reader = Reader(tmp_path).steps(2)
    assert reader.batches == [0]
    log.append_bytes(content[-9:])
    assert reader.take_over().steps(2).batches == [0, 1]
    assert reader.problems == []


def test_rolled_files_are_read_in_order_and_the_oldest_state_is_kept(tmp_path: Path) -> None:
    log = EventLog(tmp_path, rolling=True)
    log.append(*header(), started())
    for number in range(12):
        log.append(progress(number))
        log.roll()
    reader = Reader(tmp_path).steps(6)
    assert reader.batches == list(range(12))
    assert reader.news[-1].program == "shop"


def test_the_next_file_waits_until_the_size_of_this_one_is_certain(tmp_path: Path) -> None:
    log = EventLog(tmp_path, rolling=True)
    log.append(*header(), progress(0))
    log.roll()
    reader = Reader(tmp_path)
    reader.step()
    # A listing is not atomic: it had the old size of the first file, and the second one.
    log.number = 1
    log.append(progress(1))
    log.number = 2
    log.append(progress(2))
    assert reader.steps().batches == [0, 1, 2]


def test_a_compact_file_replaces_those_that_were_not_read_yet(tmp_path: Path) -> None:
    log = EventLog(tmp_path, rolling=True)
    log.append(*header(), started(), progress(0))
    reader = Reader(tmp_path).steps(2)
    for number in (1, 2, 3):
        log.roll()
        log.append(progress(number))
    log.compact(3, *header(), started(), *(progress(number) for number in range(4)))
    log.roll()
    log.append(progress(4))
    assert sorted(set(reader.take_over().steps(4).batches)) == [0, 1, 2, 3, 4]


def test_a_compact_file_of_what_was_read_is_not_read(tmp_path: Path) -> None:
    log = EventLog(tmp_path, rolling=True)
    for number in range(6):
        log.append(*(header() if not number else ()), progress(number))
        log.roll()
    reader = Reader(tmp_path).steps(6)
    log.compact(3, *header(), *(progress(number) for number in range(4)))
    assert reader.steps(4).batches == list(range(6))


def test_a_truncated_or_replaced_log_is_read_from_the_beginning(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.append(*header(), started(), *(progress(number) for number in range(5)))
    reader = Reader(tmp_path).steps(2)
    log.path.write_bytes(text_of([*header("second"), progress(0)]))
    reader.news.clear()
    reader.steps(2)
    assert (reader.batches, reader.news[-1].program) == ([0], "second")


def test_a_step_reads_about_one_chunk_of_each_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK", 4_000)
    for name in ("app-1", "app-2"):
        log = EventLog(tmp_path, name)
        log.append(*header(), *(event for number in range(30) for event in (NOISE, progress(number))))
    reader = Reader(tmp_path)
    for _ in range(50):
        before = reader.files.read_bytes
        if not reader.step():
            break
        reader = reader.take_over()
        assert reader.files.read_bytes - before <= 8_000
    assert sorted(reader.batches) == sorted([*range(30), *range(30)])


def test_logs_take_turns_when_a_step_is_cut_off(tmp_path: Path) -> None:
    for number in range(7):
        EventLog(tmp_path, f"app-{number}", rolling=True).append(*header(f"program {number}"), progress(0))
    reader = Reader(tmp_path)
    for _ in range(4):
        left = iter([True, True])
        reader.step(lambda left=left: next(left, False))  # type: ignore[misc]
    assert {each.program for each in reader.news} == {f"program {number}" for number in range(7)}


def test_an_event_larger_than_a_chunk_is_read_and_one_that_is_too_large_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHUNK", 1_000)
    monkeypatch.setattr(reading, "LARGEST_CHUNK", 8_000)
    log = EventLog(tmp_path)
    log.append(*header(), progress(0, observedMetrics={"x": "y" * 5_000}), progress(1))
    log.append(progress(2, observedMetrics={"x": "y" * 50_000}), progress(3))
    reader = Reader(tmp_path)
    found = []
    for _ in range(20):
        reader.step()
        found += [code for code, _ in reader.problems]
    assert reader.batches == [0, 1, 3]
    assert set(found) == {"watched.log-damaged"}


def test_damage_is_named_and_what_follows_is_read(tmp_path: Path) -> None:
    log = EventLog(tmp_path, codec="zstd")
    log.append(*header(), progress(0))
    log.append_bytes(b"\x00" * 500)
    other = EventLog(tmp_path, "app-2").append(*header("other"), progress(7))
    reader = Reader(tmp_path).steps(2)
    ((code, values),) = reader.problems
    assert (code, values["location"]) == ("watched.log-damaged", str(log.path))
    log.append(progress(1))
    other.append(progress(8))
    assert sorted(reader.steps(2).batches) == [0, 1, 7, 8]
    assert reader.problems == []


def test_a_line_that_is_not_an_event_does_not_stop_the_others(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.append(*header(), progress(0))
    log.append_bytes(b'{"Event":"org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent","pro\n')
    wrong = progress(1) | {"progress": [1]}
    log.append(wrong, progress(1, sources=None, stateOperators=None, sink=None), progress(2, timestamp="never"))
    log.append(progress(3, eventTime=7))
    reader = Reader(tmp_path).steps(2)
    assert reader.batches == [0, 1, 2, 3]
    assert [code for code, _ in reader.problems] == ["watched.log-damaged"]


def test_a_codec_without_a_reader_is_named(tmp_path: Path) -> None:
    log = EventLog(tmp_path, codec="lzf")
    log.append_bytes(b"ZV\x01")
    EventLog(tmp_path, "app-2").append(*header(), progress(0))
    reader = Reader(tmp_path).steps(3)
    assert reader.problems == [("watched.unknown-codec", {"location": str(log.path), "codec": "lzf"})]
    assert reader.batches == [0]


def test_other_files_are_not_taken_for_logs(tmp_path: Path) -> None:
    EventLog(tmp_path).append(*header(), progress(0))
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "README").write_text("not an event\n" * 1000)
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "directory").mkdir()
    (tmp_path / "empty").touch()
    reader = Reader(tmp_path).steps(3)
    assert (reader.batches, reader.problems) == ([0], [])


def test_logs_of_the_last_days_are_read_and_at_most_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_LOGS", 3)
    old = START_MS - (DAYS + 1) * 24 * 3_600_000
    EventLog(tmp_path, "old").append(*header("old"), progress(0), at_ms=old)
    EventLog(tmp_path, "old-rolling", rolling=True).append(*header("old"), progress(0), at_ms=old)
    for number in range(3):
        EventLog(tmp_path, f"app-{number}").append(*header(f"program {number}"), progress(0), at_ms=START_MS + number)
    reader = Reader(tmp_path).steps(2)
    assert {each.program for each in reader.news} <= {"program 0", "program 1", "program 2"}
    assert len(reader.news) >= 2
    assert ("watched.too-many-logs", {"most": 3, "days": DAYS}) in reader.problems


def test_a_log_that_has_not_changed_for_an_hour_is_listed_every_ten_minutes(tmp_path: Path) -> None:
    EventLog(tmp_path, rolling=True).append(*header(), progress(0))
    reader = Reader(tmp_path).steps(2)
    reader.step(after_ms=QUIET_MS)
    listings = len(reader.files.listings)
    for _ in range(10):
        reader.step(after_ms=QUIET_EVERY_MS // 10)
    assert len(reader.files.listings) - listings == 10 + 1


def test_a_missing_or_empty_directory_concludes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "logs"
    reader = Reader(root)
    with pytest.raises(DirectoryMissing):
        reader.step()
    root.mkdir()
    assert reader.step() == []
    EventLog(root).append(*header(), progress(0))
    reader.step()
    stored = reader.stored
    root.rename(tmp_path / "away")
    root.mkdir()
    with pytest.raises(DirectoryMissing):
        reader.step()
    assert reader.stored == stored


def test_a_log_without_rights_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    closed = EventLog(tmp_path, "closed").append(*header())
    EventLog(tmp_path, "open").append(*header(), progress(0))
    reader = Reader(tmp_path)

    class Guarded(CountedFiles):
        def read_part(self, path: str, start: int, size: int) -> bytes:
            if "closed" in path:
                raise AccessDenied(f"{path}: the storage refuses access")
            return super().read_part(path, start, size)

    reader.files = Guarded()
    reader.step()
    assert reader.batches == [0]
    assert [(code, values["location"]) for code, values in reader.problems] == [
        ("watched.not-readable", str(closed.path))
    ]


def test_a_long_backlog_reports_the_newest_batches_of_a_run(tmp_path: Path) -> None:
    EventLog(tmp_path).append(*header(), *(progress(number) for number in range(BATCHES * 3)))
    reader = Reader(tmp_path).steps(2)
    assert reader.batches == list(range(BATCHES * 2, BATCHES * 3))


def test_a_termination_has_the_time_of_the_newest_event_before_it_and_its_exception(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    events = started(), progress(0), job_end(START_MS + 5_000), terminated("java.lang.Boom: x\n\tat y")
    log.append(*header(), *events, at_ms=START_MS + 6_000)
    reader = Reader(tmp_path)
    (news,) = reader.step()
    (query,) = news.queries
    assert datetime.fromisoformat(query["ended_at"]).timestamp() * 1000 == START_MS + 5_000
    assert query["exception"] == "java.lang.Boom: x\n\tat y"
    assert query["started_at"] == time_of(START_MS)
    assert "open" not in reader.log


def test_the_end_of_the_application_ends_its_queries(tmp_path: Path) -> None:
    log = EventLog(tmp_path, rolling=True)
    log.append(*header(), started(), started("second", "run-2"))
    reader = Reader(tmp_path).steps(2)
    assert {query["state"] for query in reader.news[-1].queries} == {"running"}
    log.append(application_end(START_MS + 9_000))
    reader = reader.take_over().steps(1)
    assert {(query["name"], query["state"]) for query in reader.news[-1].queries} == {
        ("orders", "ended"),
        ("second", "ended"),
    }


def test_queries_without_events_are_alive_while_the_log_grows(tmp_path: Path) -> None:
    log = EventLog(tmp_path).append(*header(), started())
    reader = Reader(tmp_path).steps(2)
    log.append(NOISE, at_ms=START_MS + 7_000)
    (news,) = reader.step()
    assert (news.at_ms, [query["run_id"] for query in news.queries]) == (START_MS + 7_000, [RUN])


def test_no_run_ends_after_the_last_change_of_its_log(tmp_path: Path) -> None:
    events = started(), job_end(START_MS + 999_000), terminated()
    EventLog(tmp_path).append(*header(), *events, at_ms=START_MS + 6_000)
    (news,) = Reader(tmp_path).step()
    assert datetime.fromisoformat(news.queries[0]["ended_at"]).timestamp() * 1000 == START_MS + 6_000
