"""The causes that are found in rows, with their boundaries, and none for a healthy job."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from monitoring.diagnosis.diagnosis_facts import Normal, OperatorFacts, Raised
from monitoring.diagnosis.finding import Confidence
from monitoring.diagnosis.signs import causes
from monitoring.diagnosis.signs.base import milliseconds, size
from monitoring.diagnosis.signs.exceptions import FAMILIES, ExceptionReason
from monitoring.diagnosis.signs.phases import PhaseReason
from monitoring.diagnosis.signs.skew import SkewReason
from monitoring.engine.causes import root_cause
from monitoring.reasons.reason import render
from tests.monitoring.diagnosis.builders import (
    DECLINED,
    EXPIRED,
    NOW,
    USUAL,
    checkpoint,
    expired,
    facts,
    operator,
    thrown,
)

SAMPLES = Path(__file__).resolve().parents[2] / "flink_samples"


def names(of) -> list[str]:
    return [each.name for each in causes(of)]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (checkpoint(), []),
        (checkpoint(lasted=1599, start_delay=1200), []),  # less than a second more than usual
        (checkpoint(lasted=1600, start_delay=1200), ["back_pressure"]),
        (checkpoint(lasted=5000, start_delay=1999), []),  # too small a share of the duration
        (checkpoint(lasted=5000, start_delay=2000), ["back_pressure"]),
        (checkpoint(lasted=5000, alignment=4000), ["alignment"]),
        (checkpoint(lasted=5000, sync=4500), ["slow_commit"]),
        (checkpoint(lasted=5000, async_=4500), ["slow_storage"]),
        (checkpoint(lasted=1600, async_=850), []),  # less than half a second more than usual
        (checkpoint(lasted=9000, start_delay=5000, async_=3800), ["back_pressure", "slow_storage"]),
        (checkpoint(is_savepoint=True, lasted=29_000, async_=28_000), []),  # a savepoint writes the whole state
        (checkpoint(is_savepoint=True, lasted=30_000, async_=28_000), ["slow_storage"]),
        (checkpoint(status="IN_PROGRESS", lasted=20_000, start_delay=15_000, ended_at=None), ["back_pressure"]),
        (checkpoint(status="IN_PROGRESS", lasted=60_000, acknowledged=3, ended_at=None), ["held_up"]),
        (checkpoint(status="IN_PROGRESS", lasted=59_999, acknowledged=3, ended_at=None), []),
        (expired(start_delay=30_000), ["back_pressure"]),
    ],
)
def test_phases(asked, expected) -> None:
    assert names(facts(asked)) == expected


def test_only_a_checkpoint_that_must_run_alone_delays_the_next() -> None:
    pending = checkpoint(status="IN_PROGRESS", lasted=60_000, acknowledged=3, ended_at=None)
    assert names(facts(pending, config={"timeout": 600_000, "max_concurrent": 2})) == []
    assert names(facts(replace(pending, is_savepoint=True), config={"timeout": 600_000})) == []


def test_slow_is_relative_to_the_history_of_the_job() -> None:
    slow = checkpoint(lasted=5000, async_=4500)
    calm = replace(USUAL, duration=4800, async_=4300)
    assert names(facts(slow, normal=calm)) == []
    assert names(facts(slow, normal=replace(USUAL, count=4))) == []  # too few checkpoints for a usual duration
    assert names(facts(checkpoint(lasted=30_000, async_=28_000), normal=Normal())) == ["slow_storage"]


def test_a_cause_has_its_numbers_the_usual_ones_and_the_setting_to_change() -> None:
    (found,) = causes(facts(checkpoint(lasted=5000, async_=4500, checkpointed_size=499_000_000)))
    assert found.sentence == PhaseReason.LONG_WRITE(number=41, took=4500, share=90)
    assert str(found.sentence) == (
        "The slowest subtask of checkpoint 41 took 4.5 s to write its state to the checkpoint storage, "
        "90 % of the total duration."
    )
    assert "4.5 秒" in render(found.sentence, "zh-hans")
    assert [(each.value, each.usual) for each in found.evidence][:3] == [
        (milliseconds(4500), milliseconds(400)),
        (milliseconds(5000), milliseconds(600)),
        (size(499_000_000), size(2_000_000)),
    ]
    assert [(each.key, each.value) for each in found.advice] == [
        ("execution.checkpointing.incremental", "true"),
        ("state.backend.type", "rocksdb"),
    ]


def test_keys_are_those_of_the_jobs_flink_version_and_of_spark() -> None:
    asked = checkpoint(lasted=5000, async_=4500, checkpointed_size=499_000_000)
    (old,) = causes(facts(asked, version=(1, 18)))
    assert old.advice[0].key == "state.backend.incremental"
    (spark,) = causes(facts(asked, engine="spark"))
    assert [each.key for each in spark.advice] == [
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
    ]
    (waits,) = causes(facts(checkpoint(lasted=5000, start_delay=4500), engine="spark"))
    assert "maxFilesPerTrigger" in waits.advice[0].key
    (unaligned,) = causes(facts(checkpoint(lasted=5000, start_delay=4500)))
    assert unaligned.advice[0].key == "execution.checkpointing.unaligned.enabled"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (checkpoint(lasted=5000, operators=(operator(async_=[400, 400, 4600, 400]),)), ["skew"]),
        (checkpoint(lasted=5000, operators=(operator(async_=[1600, 1600, 4600, 1600]),)), []),  # below three times
        (checkpoint(lasted=5000, operators=(operator(async_=[1500, 1500, 4500, 1500]),)), ["skew"]),
        (checkpoint(lasted=9000, operators=(operator(async_=[400, 400, 3000, 400]),)), []),  # not the reason
        (checkpoint(lasted=600, operators=(operator(async_=[10, 10, 590, 10]),)), []),  # the checkpoint is not slow
        (checkpoint(lasted=5000, operators=(operator(subtasks=2, sync=[900, 4000]),)), []),
        (checkpoint(lasted=5000, operators=(operator(subtasks=2, sync=[800, 4000]),)), ["skew"]),
        (checkpoint(lasted=5000, operators=(operator(subtasks=1, sync=[4000]),)), []),
        (expired(operators=(operator(acknowledged=3, end_to_end=[600, 600, None, 600]),)), ["skew"]),
        (expired(operators=(operator(acknowledged=2, end_to_end=[600, None, None, 600]),)), []),
    ],
)
def test_skew(asked, expected) -> None:
    assert names(facts(asked)) == expected


def test_skew_names_the_subtask_as_the_page_counts_them_and_blames_no_storage_that_its_siblings_found_fast() -> None:
    slow = operator("enrich", async_=[400, 400, 4600, 400], state_size=[1_000_000, 1_000_000, 90_000_000, 1_000_000])
    (first,) = causes(facts(checkpoint(lasted=5000, async_=4600, operators=(operator(), slow))))
    assert first.name == "skew"
    assert first.evidence[0].against == SkewReason.SIBLINGS()
    assert first.sentence == SkewReason.SLOWER_THAN_SIBLINGS(
        subtask=2, operator="enrich", number=41, measure=SkewReason.ASYNC_PART(), took=4600, others=400
    )
    assert [(each.value, each.usual) for each in first.evidence][:2] == [
        (milliseconds(4600), milliseconds(400)),
        (size(90_000_000), size(1_000_000)),
    ]
    (missing,) = causes(facts(expired(operators=(operator(acknowledged=3, end_to_end=[1, 1, None, 1]),))))
    assert missing.sentence == SkewReason.SUBTASK_MISSING(subtask=2, operator="count", number=41)


def graph(*names_and_inputs: tuple[str, str], **acknowledged: int) -> tuple[OperatorFacts, ...]:
    """Return operators with the IDs of their inputs. Each name is also the ID."""
    return tuple(
        operator(name, vertex=name, inputs=inputs.split(), acknowledged=acknowledged.get(name, 4))
        for name, inputs in names_and_inputs
    )


LINE = (("source", ""), ("count", "source"), ("sink", "count"))


def test_a_barrier_that_never_arrived() -> None:
    stuck = graph(*LINE, count=0, sink=0)
    (found,) = causes(facts(expired(operators=stuck, acknowledged=4)))
    assert (found.name, found.confidence) == ("back_pressure", Confidence.POSSIBLE)
    assert found.sentence == PhaseReason.NEVER_ARRIVED(name="count", number=41, before="source")
    nobody = tuple(replace(each, acknowledged=0) for each in stuck)
    assert names(facts(expired(operators=nobody))) == []


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        (graph(("one", ""), ("two", ""), ("join", "one two"), join=0), ["back_pressure"]),
        (graph(("one", ""), ("two", ""), ("join", "one two"), join=0, two=3), ["skew"]),  # an input is incomplete
        (graph(*LINE, source=0), ["busy_source"]),  # operators behind the source have acknowledged
        (tuple(replace(each, inputs=None) for each in graph(*LINE, count=0)), []),  # the graph is unknown
    ],
)
def test_only_operators_upstream_delay_the_barrier_of_an_operator(operators, expected: list[str]) -> None:
    if "skew" in expected:
        operators = (operators[0], replace(operators[1], end_to_end=[600, None, 600, 600]), operators[2])
    assert names(facts(expired(operators=operators))) == expected


def test_a_source_that_starts_late_is_under_no_back_pressure() -> None:
    late = {"source": 8000, "count": 8100}
    operators = tuple(replace(each, start_delay=[late.get(each.name, 40)] * 4) for each in graph(*LINE[:2]))
    asked = checkpoint(lasted=9000, start_delay=8100, operators=operators)
    (found,) = causes(facts(asked))
    assert (found.name, found.advice) == ("busy_source", ())
    assert found.sentence == PhaseReason.SOURCE_LATE(name="source", number=41, after=8000)
    assert names(facts(asked, engine="spark")) == ["back_pressure"]  # in Spark, the end of the batch is the barrier
    behind = (replace(operators[0], start_delay=[40] * 4), operators[1])
    assert names(facts(replace(asked, operators=behind))) == ["back_pressure"]


def test_a_batch_that_did_not_end_is_reported_by_waymarks_job_manager() -> None:
    stuck = "Query 'words' has not come to the end of batch 7; Spark says: Processing new data."
    asked = expired(failure=f"{EXPIRED} {stuck}", acknowledged=0, start_delay=None, operators=())
    (found,) = causes(facts(asked, engine="spark"))
    assert (found.name, found.confidence) == ("back_pressure", Confidence.CERTAIN)
    assert found.sentence == PhaseReason.BATCH_GOES_ON_SAID(number=41, within=60_000, said=stuck.rstrip("."))
    assert "maxOffsetsPerTrigger" in found.advice[0].key
    owing = "6 of 6 subtasks have not acknowledged it."
    silent = expired(failure=f"{EXPIRED} {owing}", acknowledged=0, start_delay=None, operators=())
    (likely,) = causes(facts(silent, engine="spark"))
    assert (likely.name, likely.confidence) == ("back_pressure", Confidence.LIKELY)
    undated = replace(silent, lasted=None)
    assert names(facts(undated, engine="spark", config={"timeout": None})) == []  # the timeout is unknown
    assert names(facts(silent)) == []  # for Flink it proves nothing


@pytest.mark.parametrize(
    ("text", "family"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", "out_of_memory"),
        ("java.lang.OutOfMemoryError: GC overhead limit exceeded", "out_of_memory"),
        ("MemoryError", "out_of_memory"),
        ("The driver's process 4121 ended through signal 9 without saying why.", "lost_machine"),
        ("The pod s/waymark-1 of the driver used more memory than its limit.", "out_of_memory"),
        ("Kubernetes evicted the pod s/waymark-1 of the driver: The node was low on memory.", "lost_machine"),
        ("The pod s/waymark-1 of the driver was deleted.", "lost_machine"),
        ("The pod s/waymark-1 of the driver did not start within 600 s: Unschedulable.", "pod_not_started"),
        ("Container is running beyond physical memory limits", "out_of_memory"),
        ("Connection unexpectedly closed by remote task manager '10.0.0.7:41231'", "lost_machine"),
        ("Heartbeat of TaskManager with id 10.0.0.7:4 timed out.", "lost_machine"),
        ("TaskManager with id 10.0.0.7:4 is no longer reachable.", "lost_machine"),
        ("The driver of attempt 3 sent no heartbeat for 20 s.", "lost_machine"),
        ("ExecutorLostFailure (executor 3 exited)", "lost_machine"),
        ("Could not acquire the minimum required resources.", "no_slots"),
        ("NoResourceAvailableException: Slot request bulk is not fulfillable!", "no_slots"),
        ("java.io.IOException: No space left on device", "storage_refuses"),
        ("AmazonS3Exception: Access Denied (Service: Amazon S3; Status Code: 403)", "storage_refuses"),
        ("java.util.concurrent.TimeoutException: Async function call has timed out.", "external_timeout"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "external_timeout"),
        ("httpx.ReadTimeout: timed out", "external_timeout"),
        ("urllib.error.HTTPError: HTTP Error 500: Internal Server Error", "external_timeout"),
        ("java.lang.RuntimeException: demo: snapshot failure requested", "user_exception"),
        ("KeyError: 'tailnum'", "user_exception"),
        ("java.lang.IllegalStateException: timeouts must be positive", "user_exception"),
    ],
)
def test_exceptions_are_distinguished(text: str, family: str) -> None:
    (found,) = causes(facts(expired(failure=DECLINED), raised=(thrown(text),)))
    assert (found.name, found.confidence) == (family, Confidence.CERTAIN)
    says = next(each.says for each in FAMILIES if each.name == family)
    assert found.sentence == ExceptionReason.THROWN_IN_TASK(what=says, text=text.rstrip("."), task="count (2/4)")


def test_wrapping_exceptions_do_not_hide_the_cause() -> None:
    trace = "org.apache.flink.FlinkException: it failed\nCaused by: java.lang.OutOfMemoryError: Metaspace"
    assert names(facts(expired(failure=DECLINED), raised=(thrown("it failed", trace),))) == ["out_of_memory"]


@pytest.mark.parametrize(("seconds_ago", "expected"), [(75, True), (75.1, False), (30, True), (29.9, False)])
def test_only_exceptions_during_the_checkpoint_count(seconds_ago: float, expected: bool) -> None:
    asked = expired(failure=DECLINED)
    found = names(facts(asked, raised=(thrown("KeyError: 'x'", seconds_ago=seconds_ago),)))
    assert (found == ["user_exception"]) is expected


def test_a_consequence_is_not_a_cause_and_a_completed_checkpoint_has_none() -> None:
    consequence = thrown("Exceeded checkpoint tolerable failure threshold.")
    assert names(facts(expired(), raised=(consequence,))) == []
    assert names(facts(checkpoint(), raised=(thrown("KeyError: 'x'"),))) == []


def test_the_recorded_decline_of_flink_is_an_exception_of_the_program() -> None:
    entry = json.loads((SAMPLES / "exceptions_after_decline.json").read_text())["exceptionHistory"]["entries"][0]
    declined = json.loads((SAMPLES / "checkpoints_after_decline.json").read_text())
    failed = next(each for each in declined["history"] if each["status"] == "FAILED")
    raised = Raised(NOW, root_cause(entry["stacktrace"]), entry["stacktrace"], entry["taskName"], entry["endpoint"])
    asked = expired(failure=failed["failure_message"], triggered_at=NOW, ended_at=NOW + timedelta(seconds=1))
    first = causes(facts(asked, raised=(raised,)))[0]
    assert (first.name, first.confidence) == ("user_exception", Confidence.CERTAIN)
    assert "demo: snapshot failure requested" in first.sentence.args["text"]


def test_the_failure_message_of_the_engine_is_enough_if_it_has_the_cause() -> None:
    full = "Failure to finalize checkpoint. java.io.IOException: No space left on device"
    assert names(facts(expired(failure=full))) == ["storage_refuses"]
    assert names(facts(expired(failure=DECLINED))) == []


@pytest.mark.parametrize(("p95", "expected"), [(36_000, ["timeout_too_short"]), (35_999, [])])
def test_a_timeout_without_a_margin_is_found(p95: float, expected: list[str]) -> None:
    found = causes(facts(expired(), normal=replace(USUAL, duration=20_000, duration_p95=p95)))
    assert [each.name for each in found] == expected
    if found:
        assert (found[0].advice[0].key, found[0].advice[0].value) == ("execution.checkpointing.timeout", "2 min")


def test_an_exception_precedes_the_interruption_as_a_cause() -> None:
    asked = expired(failure="Checkpoint Coordinator is suspending.")
    assert names(facts(asked)) == ["interrupted"]
    assert names(facts(asked, raised=(thrown("KeyError: 'x'"),))) == ["user_exception", "interrupted"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"last_triggered_at": NOW - timedelta(seconds=59)}, []),
        ({"last_triggered_at": NOW - timedelta(seconds=60)}, ["not_triggered"]),
        ({"last_triggered_at": None, "run_started_at": NOW - timedelta(seconds=50)}, []),
        ({"last_triggered_at": None, "run_started_at": NOW - timedelta(seconds=61)}, ["not_triggered"]),
        ({"last_triggered_at": NOW - timedelta(hours=1), "runs": False}, []),
        ({"last_triggered_at": NOW - timedelta(hours=1), "config": {"interval": None}}, []),
        ({"last_triggered_at": NOW - timedelta(hours=1), "config": {"interval": 3_600_000}}, []),
        ({"silent_since": NOW - timedelta(minutes=5)}, ["not_seen"]),
        ({"silent_since": NOW - timedelta(minutes=5), "last_triggered_at": NOW - timedelta(hours=1)}, ["not_seen"]),
    ],
)
def test_missing_checkpoints(values, expected) -> None:
    assert names(facts(**values)) == expected


def test_a_dead_job_is_explained_by_its_last_exception_and_a_live_one_is_not() -> None:
    raised = (thrown("KeyError: 'x'", seconds_ago=3600),)
    assert names(facts(raised=raised, runs=False)) == ["user_exception"]
    assert names(facts(raised=raised)) == []
