"""Events that Spark 4.3 wrote, and its own progress of the same query (the exception is cut)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpointing.eventlogs.events import LONGEST_TEXT, MOST_PARTS, Application
from tests.checkpointing.eventlogs.logs import Json, header, progress, text_of

EVENTS = Path(__file__).with_name("spark_4_3_events.jsonl")
PROGRESS = Path(__file__).with_name("spark_4_3_progress.json")


def application(content: bytes) -> Application:
    read = Application()
    assert all(read.read(line) for line in content.splitlines())
    return read


def test_the_batches_agree_with_sparks_own_progress() -> None:
    news = application(EVENTS.read_bytes()).news(1_795_721_500_000)
    expected = json.loads(PROGRESS.read_text())
    batches = [batch for batch in news.batches if batch.get("name") == "orders"]
    assert [batch["batchId"] for batch in batches] == [each["batchId"] for each in expected]
    for batch, theirs in zip(batches, expected, strict=True):
        for name in ("id", "runId", "timestamp", "batchDuration", "durationMs", "eventTime", "numInputRows"):
            assert batch[name] == theirs[name]
        for name in ("inputRowsPerSecond", "processedRowsPerSecond"):
            assert batch[name] == pytest.approx(theirs[name], abs=0.051), "Spark rounds its own"
        (operator,), (source,) = theirs["stateOperators"], theirs["sources"]
        assert batch["stateOperators"] == [{name: operator[name] for name in batch["stateOperators"][0]}]
        assert batch["sources"][0]["endOffset"] == json.dumps(source["endOffset"])
        assert batch["sink"] == theirs["sink"]


def test_each_run_has_its_end_and_its_exception() -> None:
    news = application(EVENTS.read_bytes()).news(1_795_721_500_000)
    ends = {query["name"]: query for query in news.queries}
    assert (news.program, news.spark) == ("shop <b>", "4.3.0")
    assert {query["state"] for query in news.queries} == {"ended"}
    assert ends[""]["exception"].startswith("org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION]")
    assert "exception" not in ends["orders"]
    assert ends["idle"]["idle_at"] < ends["idle"]["ended_at"]


def changed(**fields: Any) -> Iterator[Json]:
    return iter(application(text_of([*header(), progress(1, **fields)])).news(1).batches)


def test_values_that_spark_does_not_report_are_omitted() -> None:
    batch = next(changed())
    assert "inputRowsPerSecond" not in batch
    assert (batch["processedRowsPerSecond"], batch["numInputRows"]) == (2.5, 7)
    without = next(changed(sources=[], sink=None, stateOperators=None, batchDuration=None))
    assert "numInputRows" not in without
    assert (without["stateOperators"], without["sink"]) == ([], {})


def test_long_texts_and_lists_are_cut() -> None:
    source = {"description": "x" * 9_000, "endOffset": {"a": "y" * 9_000}, "numInputRows": 1}
    batch = next(changed(sources=[source] * 200))
    assert len(batch["sources"]) == MOST_PARTS
    assert len(batch["sources"][0]["description"]) == len(batch["sources"][0]["endOffset"]) == LONGEST_TEXT


def test_other_events_are_not_parsed() -> None:
    assert Application().read(b'{"Event":"SparkListenerTaskEnd", this is no JSON')
    assert not Application().read(b"this is no event")
