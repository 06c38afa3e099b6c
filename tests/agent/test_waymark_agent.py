"""The agent against servers that answer, hang, are dead or send garbage. A query never waits and never fails."""

from __future__ import annotations

import ast
import json
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from monitoring.engine.reported.report import MOST_BATCHES, report_in
from tests.agent.servers import (
    STORED,
    Waymark,
    drips,
    free_address,
    garbage,
    hangs_up,
    never_answers,
    page,
    raw_server,
)
from tests.agent.sessions import AGENT, FakeQuery, FakeSpark, load_agent
from tests.certificates import Authority
from tests.waiting import eventually

TOKEN = "wmk_secret-of-the-test"


@pytest.fixture
def module() -> ModuleType:
    """Return the agent's module with short waits."""
    found = load_agent()
    found.EVERY_S, found.FIRST_RETRY_S, found.LAST_RETRY_S = 0.02, 0.02, 0.1
    found.FLUSH_S, found.LOG_EVERY_S = 1.0, 0.0
    return found


@pytest.fixture
def attach(module: ModuleType) -> Iterator[Callable[..., Any]]:
    """Return a function that attaches an agent. It is closed at the end, and its thread has ended."""
    agents: list[Any] = []

    def attach_one(spark: FakeSpark, url: str, **options: Any) -> Any:
        agents.append(module.attach(spark, url, **{"token": TOKEN, **options}))
        return agents[-1]

    yield attach_one
    module.FLUSH_S = 0.0  # nothing more has to be sent
    for each in agents:
        each.close()
        if each._thread is not None:
            eventually("the thread ends", lambda each=each: not each._thread.is_alive(), 30)


@pytest.fixture
def waymark() -> Iterator[Waymark]:
    with Waymark().running() as server:
        yield server


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Waymark]:
    """Return a Waymark with TLS. The certificate of its authority is in ca.pem."""
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    with Waymark(authority.sign().server_context(tmp_path)).running() as server:
        yield server


def test_what_spark_reports_arrives_in_a_form_that_waymark_accepts(attach: Any, waymark: Waymark) -> None:
    spark = FakeSpark()
    attach(spark, f"{waymark.url}/")
    query, failing = spark.start(FakeQuery()), spark.start(FakeQuery(name=None))
    for number in range(3):
        spark.batch(query, number, numInputRows=number)
    spark.idle(query)
    spark.end(failing, "java.lang.IllegalStateException: boom")
    spark.end(query)
    eventually("both ends", lambda: sum(each["state"] == "ended" for each in waymark.queries.values()) == 2)
    eventually("the batches", lambda: len(waymark.stored) == 3)
    assert [each["batchId"] for each in waymark.stored] == [0, 1, 2]
    assert waymark.queries[str(query.runId)]["idle_at"] == "2026-11-26T12:00:09.000Z"
    assert waymark.queries[str(failing.runId)]["exception"] == "java.lang.IllegalStateException: boom"
    assert waymark.tokens == {f"Bearer {TOKEN}"}
    for post in waymark.posts:
        read = report_in(json.dumps(post).encode(), datetime.now(UTC) + timedelta(days=365))
        assert read.program == "shop"


def test_a_query_that_runs_before_the_agent_is_named(attach: Any, waymark: Waymark) -> None:
    query = FakeQuery()
    attach(FakeSpark(query), waymark.url)
    eventually("the query", lambda: str(query.runId) in waymark.queries)
    assert waymark.queries[str(query.runId)]["name"] == "orders"


def test_running_queries_are_named_again_without_news(attach: Any, waymark: Waymark, module: ModuleType) -> None:
    module.ALIVE_EVERY_S = 0.05  # type: ignore[attr-defined]
    spark = FakeSpark()
    attach(spark, waymark.url)
    query = spark.start(FakeQuery())
    eventually("repeated reports", lambda: len(waymark.posts) >= 4)
    assert {each["run_id"] for post in waymark.posts[1:] for each in post["queries"]} == {str(query.runId)}
    spark.end(query)
    eventually("the end", lambda: waymark.queries[str(query.runId)]["state"] == "ended")
    sent = len(waymark.posts)
    time.sleep(0.3)
    assert len(waymark.posts) == sent


@pytest.mark.parametrize("talk", [None, never_answers, drips, garbage, page, hangs_up])
def test_no_call_of_the_listener_waits_for_a_server_that_fails(
    attach: Any, module: ModuleType, talk: Callable[[socket.socket], None] | None
) -> None:
    """A call that waited for the server, or for a lock that is held during a request, would take 60 s."""
    module.MOST_BATCHES, module.TIMEOUT_S = 200, 60.0  # type: ignore[attr-defined]
    spark = FakeSpark()
    with ExitStack() as stack:
        url = free_address() if talk is None else stack.enter_context(raw_server(talk))
        agent = attach(spark, url)
        query = spark.start(FakeQuery())
        calls = []
        for number in range(1_000):
            began = time.perf_counter()
            spark.batch(query, number)
            calls.append(time.perf_counter() - began)
        assert max(calls) < 20
        assert len(agent._queue) <= 201
        assert agent.is_running
        began = time.monotonic()
        agent.close()
        assert time.monotonic() - began < 20


def test_an_outage_loses_only_the_oldest_batches_and_their_number_is_reported(
    attach: Any, module: ModuleType, waymark: Waymark
) -> None:
    module.MOST_BATCHES, module.MOST_SENT = 50, 10  # type: ignore[attr-defined]
    waymark.answer = lambda post: (503, b"{}", {})
    spark = FakeSpark()
    agent = attach(spark, waymark.url)
    query = spark.start(FakeQuery())
    spark.batch(query, 0)
    eventually("a failed post", lambda: agent._taken)
    for number in range(1, 101):
        spark.batch(query, number)
    waymark.answer = lambda post: STORED
    eventually("the rest", lambda: len(waymark.stored) >= 51)
    assert [each["batchId"] for each in waymark.stored] == [0, *range(51, 101)]
    spark.end(query)
    eventually("the end", lambda: waymark.queries[str(query.runId)]["state"] == "ended")
    assert waymark.queries[str(query.runId)]["dropped"] == 50


def test_the_size_of_the_queue_is_limited_too(attach: Any, module: ModuleType) -> None:
    module.MOST_CHARACTERS = 100_000  # type: ignore[attr-defined]
    spark = FakeSpark()
    agent = attach(spark, free_address())
    for number in range(100):
        spark.batch(FakeQuery(), number, sink={"description": "x" * 10_000})
    assert agent._queue._characters <= 100_000


def test_a_post_whose_answer_is_lost_is_sent_again_unchanged(attach: Any, waymark: Waymark) -> None:
    answers = iter([(200, b"", {}), (502, b"<html>", {})])
    seen: list[dict[str, Any]] = []

    def answer(post: dict[str, Any]) -> Any:
        seen.append(post)
        return next(answers, STORED)

    waymark.answer = answer
    spark = FakeSpark()
    attach(spark, waymark.url)
    spark.batch(FakeQuery(), 7)
    eventually("it is stored", lambda: waymark.stored)
    assert [post["progress"] for post in seen[:3]] == [seen[0]["progress"]] * 3


def test_a_batch_that_waymark_refuses_does_not_stop_the_others(attach: Any, waymark: Waymark) -> None:
    refused = (400, json.dumps({"error": {"message": "progress[0].batchId is wrong"}}).encode(), {})
    waymark.answer = lambda post: refused if any(each["batchId"] == 13 for each in post["progress"]) else STORED
    spark = FakeSpark()
    attach(spark, waymark.url)
    query = spark.start(FakeQuery())
    for number in range(40):
        spark.batch(query, number)
    eventually("the others", lambda: len(waymark.stored) >= 39)
    assert {each["batchId"] for each in waymark.stored} == set(range(40)) - {13}
    spark.end(query)
    eventually("the end", lambda: waymark.queries[str(query.runId)]["state"] == "ended")
    assert waymark.queries[str(query.runId)]["dropped"] == 1


def test_a_post_is_never_larger_than_waymark_accepts(attach: Any, module: ModuleType, waymark: Waymark) -> None:
    assert module.MOST_SENT <= MOST_BATCHES
    spark = FakeSpark()
    attach(spark, waymark.url)
    query = spark.start(FakeQuery())
    source = {"description": "Kafka", "endOffset": {"topic": {str(n): 10**12 for n in range(400)}}}
    for number in range(20):
        spark.batch(query, number, sources=[source] * 60)
    eventually("all", lambda: len(waymark.stored) == 20)
    assert max(len(json.dumps(post)) for post in waymark.posts) < 1_500_000
    (kept,) = {each["endOffset"] for each in waymark.stored[0]["sources"]}
    assert (len(kept), len(waymark.stored[0]["sources"])) == (4_000, 50)


@pytest.mark.parametrize(
    ("url", "token", "text"),
    [
        ("", TOKEN, "WAYMARK_URL must be an address"),
        ("ftp://waymark", TOKEN, "WAYMARK_URL must be an address"),
        (f"http://user:{TOKEN}@waymark", TOKEN, "must have no user name"),
        (f"http://waymark/?token={TOKEN}", TOKEN, "must have no user name"),
        ("http://waymark", "", "WAYMARK_TOKEN must be a token"),
        ("http://waymark", f"{TOKEN}\nX: y", "WAYMARK_TOKEN must be a token"),
    ],
)
def test_a_wrong_setting_is_logged_and_does_not_stop_the_program(
    attach: Any, caplog: pytest.LogCaptureFixture, url: str, token: str, text: str
) -> None:
    spark = FakeSpark()
    agent = attach(spark, url, token=token)
    assert not agent.is_running
    assert spark.listener is None
    assert text in caplog.text
    assert TOKEN not in caplog.text


def test_settings_come_from_the_environment(
    module: ModuleType, waymark: Waymark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYMARK_URL", waymark.url)
    monkeypatch.setenv("WAYMARK_TOKEN", TOKEN)
    agent = module.attach(FakeSpark(FakeQuery()))
    eventually("a report", lambda: waymark.posts)
    agent.close()


@pytest.mark.parametrize("status", [302, 401, 403, 429, 500])
def test_failures_are_logged_without_the_token_and_redirects_are_not_followed(
    attach: Any, waymark: Waymark, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    with Waymark().running() as other:
        said = json.dumps({"error": {"message": f"bad token {TOKEN}\n\x1b[31m"}}).encode()
        waymark.answer = lambda post: (status, said, {"Location": other.url, "Retry-After": "1"})
        spark = FakeSpark()
        attach(spark, waymark.url)
        spark.batch(FakeQuery(), 0)
        eventually("it is logged", lambda: f"status {status}" in caplog.text)
        assert TOKEN not in caplog.text
        assert "\x1b" not in caplog.text
        assert other.tokens == set()


def test_certificates_are_verified(
    encrypted: Waymark, attach: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    attach(FakeSpark(FakeQuery()), encrypted.url)
    eventually("it is refused", lambda: "CERTIFICATE_VERIFY_FAILED" in caplog.text)
    assert encrypted.tokens == set()
    attach(FakeSpark(FakeQuery()), encrypted.url, ca_file=str(tmp_path / "ca.pem"))
    eventually("a report", lambda: encrypted.posts)


def test_an_error_in_an_event_does_not_reach_spark(attach: Any, waymark: Waymark) -> None:
    spark = FakeSpark()
    attach(spark, waymark.url)
    for call in ("onQueryStarted", "onQueryProgress", "onQueryIdle", "onQueryTerminated"):
        getattr(spark.listener, call)(object())
    query = FakeQuery()
    spark.batch(query, 0, durationMs=float("nan"))
    eventually("it still reports", lambda: waymark.stored)


def test_the_file_is_for_python_3_9_and_has_no_dependency() -> None:
    tree = ast.parse(AGENT.read_text(), feature_version=(3, 9))
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else alias.name) or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    others = {name.partition(".")[0] for name in imported} - set(STANDARD)
    assert others == {"pyspark"}
    assert ssl.create_default_context().verify_mode is ssl.CERT_REQUIRED


STANDARD = (
    *("__future__", "atexit", "collections", "datetime", "json", "logging", "math", "os", "re", "ssl", "threading"),
    *("time", "typing", "urllib"),
)
