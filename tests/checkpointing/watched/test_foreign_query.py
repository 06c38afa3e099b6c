"""A query that Waymark knows nothing about, in plain PySpark: its files agree with Spark's own progress."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from checkpointing.clock import SystemClock
from checkpointing.watched import Query, Scan, advance, answers, polled
from tests.checkpointing.watched.foreign import Foreign, foreign_process
from tests.checkpointing.watched.locations import CountedFiles
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.long]


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return tmp_path / "root" / "team" / "counts"


@pytest.fixture(params=["same", "other"])
def processes(request: pytest.FixtureRequest, tmp_path: Path, location: Path, java_home: Path) -> Iterator[Any]:
    """Yield a function that returns the process for the next run of the query: the same or another one."""
    with ExitStack() as stack:
        started: list[Foreign] = []

        def next_process() -> Foreign:
            if not started or request.param == "other":
                stack.close()
                started.append(stack.enter_context(foreign_process(location, tmp_path)))
            return started[-1]

        yield next_process


class Door:
    def __init__(self, root: Path) -> None:
        self.root, self.files, self.scan = str(root), CountedFiles(), Scan({})
        self.queries: dict[str, Query] = {}
        self.most = 0

    def poll(self) -> bool:
        now_ms = SystemClock().now_ms()
        # Scan again at every poll.
        self.scan = advance(self.scan, self.root, self.files, now_ms + 3_600_000, lambda: True)
        for path, found in self.scan.found.items():
            before = len(self.files.requests)
            query = self.queries.get(path) or Query(f"{self.root}/{path}", found.query_id)
            self.queries[path] = polled(query, self.files, now_ms)
            self.most = max(self.most, len(self.files.requests) - before)
        return True

    def reaches(self, batch: int) -> bool:
        return self.poll() and any(query.committed >= batch for query in self.queries.values())


def milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def test_files_of_a_query_agree_with_sparks_progress_over_a_restart(tmp_path: Path, location: Path, processes) -> None:
    (tmp_path / "root").mkdir()
    door = Door(tmp_path / "root")
    with processes().running() as first:
        eventually("the first run commits batches", lambda: door.reaches(4))
    eventually("the last batch", lambda: door.reaches(first[-1]["batchId"]))
    ended_at = door.queries["team/counts"].committed
    with processes().running() as second:
        eventually("the second run commits batches", lambda: door.reaches(ended_at + 4))
    for _ in range(40):  # measures the whole state
        door.poll()
    (found,) = door.scan.found.values()
    query = door.queries["team/counts"]
    assert door.most == 2
    assert query.problem is None

    # Both runs are the same query: Spark's files do not show that it was restarted.
    assert {each["id"].replace("-", "") for each in (*first, *second)} == {found.query_id}
    assert len({each["runId"] for each in (*first, *second)}) == 2

    events = {each["batchId"]: each for each in (*first, *second)}
    # The query may have been stopped after it wrote the offsets of one more batch.
    answer = answers.checkpoints_json(query)
    listed = {each["id"]: each for each in answer["history"] if each["status"] == "COMPLETED"}
    others = [(each["id"], each["status"]) for each in answer["history"] if each["status"] != "COMPLETED"]
    assert answer["counts"]["completed"] == max(listed) + 1
    assert others in ([], [(max(listed) + 1, "IN_PROGRESS")])
    compared = [batch for batch in events if "addBatch" in events[batch]["durationMs"] and batch in listed]
    assert len(compared) >= 8
    for batch in compared:
        event, entry = events[batch], listed[batch]
        begun_ms = milliseconds(event["timestamp"])
        ended_ms = begun_ms + event["durationMs"]["triggerExecution"]
        # A batch that the first run began and the second run repeated began before the second run's trigger.
        if batch <= ended_at or batch > ended_at + 1:
            assert begun_ms <= entry["trigger_timestamp"] <= ended_ms
            assert event["durationMs"]["addBatch"] <= entry["end_to_end_duration"] + 5
        assert begun_ms <= entry["latest_ack_timestamp"] <= ended_ms + 5

    position = query.position
    assert position is not None
    event = events[position.batch]
    assert position.watermark_ms == milliseconds(event["eventTime"]["watermark"])
    assert [json.loads(each) for each in position.sources] == [json.loads(event["sources"][0]["endOffset"])]
    assert position.settings["spark.sql.shuffle.partitions"] == "2"
    assert query.size_of(query.committed + 1)
