"""Files and events that Spark 3.5 and 4.0 wrote: what is read of them equals Spark's own progress."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checkpointing import eventlogs, watched
from checkpointing.model.checkpoint import CompletedCheckpoint
from checkpointing.spark.spark_location import UNNAMED
from checkpointing.state_reading.contents import keyed_operators
from checkpointing.storage.errors import SnapshotUnusable
from checkpointing.storage.files import LocalFiles
from checkpointing.watched import answers
from monitoring.engine.fields import Fields
from monitoring.engine.reported.report import BatchReport, QueryReport, batch_in, query_in, report_in
from tests.agent.servers import Waymark
from tests.agent.sessions import FakeSpark, load_agent
from tests.checkpointing.spark.test_imported_while_running import saved_at
from tests.foreign.comparing import check_progress, position_of, state_size_of
from tests.foreign.foreign_programs import Place, Query
from tests.foreign.recordings import QUERIES, RECORDED, unpacked
from tests.foreign.watching import at_ms, milliseconds
from tests.waiting import eventually


@pytest.fixture(params=RECORDED)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    place = unpacked(request.param, tmp_path / request.param)
    assert {each.name for each in place.queries()} == set(QUERIES)
    return place


def end_of(place: Place) -> datetime:
    """Return a time just after the end of the program."""
    newest = max(path.stat().st_mtime for path in place.root.rglob("*") if path.is_file())
    return datetime.fromtimestamp(newest, UTC) + timedelta(seconds=1)


def check_reports(place: Place, batches: Iterable[BatchReport], queries: Iterable[QueryReport]) -> None:
    by_run: dict[str, dict[int, BatchReport]] = {each.run_id: {} for each in place.queries()}
    for batch in batches:
        by_run[batch.query.run_id][batch.batch_id] = batch
    last = {each.run_id: each for each in queries}
    for query in place.queries():
        assert by_run[query.run_id].keys() == {each["batchId"] for each in query.progress}
        for spark in query.progress:
            batch = by_run[query.run_id][spark["batchId"]]
            assert (batch.query.query_id, batch.query.name) == (query.id, query.name)
            assert at_ms(batch.started_at) == milliseconds(spark["timestamp"])
            assert (batch.duration_ms, batch.state_size) == (spark["batchDuration"], state_size_of(spark))
            check_progress(dict(batch.progress), spark)
        exception = query.ended["exception"]
        assert last[query.run_id].ended_at is not None
        assert last[query.run_id].exception == (None if exception is None else exception[:20_000])


def test_event_logs_of_older_versions_equal_sparks_progress(recorded: Place) -> None:
    now = end_of(recorded)
    logs, found = eventlogs.Logs(), []
    for _ in range(4):
        logs, news = eventlogs.advance(logs, str(recorded.logs), LocalFiles(), at_ms(now) or 0, lambda: True, {})
        found += news
    assert logs.problems == ()
    assert [each.ended for each in logs.logs.values()] == [True]
    assert {(each.program, each.spark) for each in found} == {("shapes", recorded.root.name)}
    batches = [batch_in(Fields(raw, "progress"), now) for each in found for raw in each.batches]
    queries = [query_in(Fields(raw, "query"), now) for each in found for raw in each.queries]
    check_reports(recorded, batches, queries)


def test_reports_of_the_agent_in_older_versions_equal_sparks_progress(recorded: Place) -> None:
    """The listener gets the events of the recording, as Spark gave them to another listener."""
    module, spark = load_agent(), FakeSpark()
    module.EVERY_S = 0.02
    with Waymark().running() as server:
        agent = module.attach(spark, server.url, token="wmk_test")
        for query in recorded.queries():
            spark.listener.onQueryStarted(SimpleNamespace(**query.started))
            for each in query.progress:
                spark.listener.onQueryProgress(SimpleNamespace(progress=_as_spark(each)))
            spark.listener.onQueryTerminated(SimpleNamespace(**query.ended))
        eventually("the ends", lambda: sum(each["state"] == "ended" for each in server.queries.values()) == 3)
        agent.close()
    reports = [report_in(json.dumps(post).encode(), datetime.now(UTC)) for post in server.posts]
    check_reports(
        recorded,
        [each for report in reports for each in report.batches],
        [q for report in reports for q in report.queries],
    )


def _as_spark(progress: dict[str, Any]) -> SimpleNamespace:
    """Return the progress as PySpark gives it to a listener. The JSON of Spark 3.5 has no duration."""
    text = json.dumps({name: value for name, value in progress.items() if name != "batchDuration"})
    return SimpleNamespace(runId=progress["runId"], batchDuration=progress["batchDuration"], json=text)


def test_checkpoint_locations_of_older_versions_agree_with_sparks_progress(recorded: Place) -> None:
    now_ms, root, files = at_ms(end_of(recorded)) or 0, str(recorded.checkpoints), LocalFiles()
    scan = watched.advance(watched.Scan({}), root, files, now_ms, lambda: True)
    own = {each.name: each for each in recorded.queries()}
    assert scan.problems == ()
    assert {path: found.query_id for path, found in scan.found.items()} == {path: own[path].id for path in own}
    for path, query in own.items():
        read = watched.Query(f"{root}/{path}", query.id)
        for _ in range(120):
            read = watched.polled(read, files, now_ms)
        assert read.problem is None
        check_location(read, query, recorded.checkpoints / path / "state")


def check_location(read: watched.Query, query: Query, state: Path) -> None:
    listed = {each["id"]: each for each in answers.checkpoints_json(read)["history"] if each["status"] == "COMPLETED"}
    assert {each["batchId"] for each in query.progress} <= listed.keys() <= {*range(len(query.progress) + 1)}
    for spark in query.progress:
        batch, begun_ms = listed[spark["batchId"]], milliseconds(spark["timestamp"])
        ended_ms = begun_ms + spark["durationMs"]["triggerExecution"] + 5
        assert begun_ms <= batch["trigger_timestamp"] <= batch["latest_ack_timestamp"] <= ended_ms
        assert batch["end_to_end_duration"] >= spark["durationMs"]["addBatch"] - 5
    position = answers.detail_json("", watched.Found(query.id, 0, "RUNNING", 0), read)["position"]
    if position["batch"] == query.progress[-1]["batchId"]:
        expected = position_of(query.progress[-1])
        assert position["watermark"] == (expected["watermark"] and milliseconds(expected["watermark"]))
        assert [json.dumps(json.loads(each)) for each in position["sources"]] == expected["sources"]
    whole = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
    assert read.state_size in (None, 0) if whole == 0 else 0 < (read.state_size or 0) < whole


def test_queries_of_older_versions_are_saved_at_their_newest_batch(recorded: Place, tmp_path: Path) -> None:
    for query in recorded.queries():
        location = recorded.checkpoints / query.name
        checkpoint = saved_at(str(location), query.started["id"], str(tmp_path / "savepoints"))
        newest = max(int(path.name) for path in location.glob("commits/*"))
        assert checkpoint.batches == {UNNAMED: newest}
        assert checkpoint.imported_queries == (query.started["id"],)
        if query.name != "failing":
            check_description(checkpoint, recorded.root.name)


def check_description(checkpoint: CompletedCheckpoint, version: str) -> None:
    """Check whether the state can be read. A job that continues from it writes what is missing in its first batch."""
    if version.startswith("3."):
        with pytest.raises(SnapshotUnusable, match=r"are missing\. Spark writes them since 4\.0"):
            keyed_operators(checkpoint)
    else:
        (operator,) = keyed_operators(checkpoint)
        assert len(operator.partitions) == 2
