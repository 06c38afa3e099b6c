"""One answer of a cluster is wrong. Other jobs are still stored, and the affected job when the answer is right."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.forms.models import model_to_dict
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection
from monitoring.models import Checkpoint, Cluster, OperatorCheckpoint, Run
from monitoring.polling import observe
from monitoring.polling.poller import Poller
from tests.monitoring.engine.answering import AnsweringEngine, Transfer, answering_engine, answers_of
from tests.profile import PROFILE

EXAMPLES = PROFILE.wrong_answers
BODY_LIMIT = 200_000
# Only an answer that is sent byte by byte reaches its limit. No other answer does, even on a slow machine.
READ_LIMIT_S = 60.0
FIGURES_FOR_S = 60.0
DRIPS_FOR_S = 0.5

pytestmark = pytest.mark.timeout(600 + EXAMPLES * 3)

_HUGE = [2**31, 2**63 - 1, 2**63, 2**64, 10**30, -1, -(2**63), 1.5, 1e300, 253_402_300_799_001]
_VALUES: list[Any] = [*_HUGE, None, True, "", "NaN", "text", "\x00", "\ud800", "x" * 5000, [], {}, [1], {"a": 1}]
# Values that json.dumps cannot write. They replace a placeholder in the text.
_RAW = [b"NaN", b"Infinity", b"1e400", b"-1e400", b"9" * 5000, b'"\\ud800"', b'"\xff\xfe"', b"[" * 900 + b"]" * 900]
_MARK = "put the raw bytes here"


class Wrong:
    """A change that makes one of the answers wrong. A failing example shows it."""

    def __init__(self, what: str, path: str, body: bytes, transfer: Transfer) -> None:
        self.what, self.path, self.body, self.transfer = what, path, body, transfer

    def __repr__(self) -> str:
        return f"{self.what} in {self.path}: {self.body[:300]!r} {self.transfer}"


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*at, key))


def put(answer: Any, at: tuple[Any, ...], value: Any) -> Any:
    """Return `answer` with another value at the path `at`. `...` removes the field, [...] repeats a list's entry."""
    if not at:
        return None if value is ... else value
    changed = copy.deepcopy(answer)
    parent = changed
    for key in at[:-1]:
        parent = parent[key]
    if value is ...:
        del parent[at[-1]]
    else:
        parent[at[-1]] = value
    return changed


@st.composite
def wrong_answers(draw: st.DrawFn, answers: dict[str, Any]) -> Wrong:
    """Draw a wrong answer about the first job, or about the cluster (the first job's entry in the list)."""
    path = draw(st.sampled_from(list(answers)))  # in their original order, because IDs differ between runs
    answer = answers[path]
    within = [at for at in places(answer) if path != "/jobs/overview" or at[:2] == ("jobs", 0)]
    at = draw(st.sampled_from(within))
    kind = draw(st.sampled_from(("value", "value", "raw", "gone", "extra", "twice", "cut", "sent")))
    body, transfer = json.dumps(answer).encode(), Transfer()
    match kind:
        case "value":
            body = json.dumps(put(answer, at, draw(st.sampled_from(_VALUES)))).encode()
        case "raw":
            raw = draw(st.sampled_from(_RAW))
            body = json.dumps(put(answer, at, _MARK)).encode().replace(json.dumps(_MARK).encode(), raw)
        case "gone":
            body = json.dumps(put(answer, at, ...)).encode()
        case "extra" if isinstance(answer, dict):
            body = json.dumps({**answer, "new-in-flink-9": [{"deep": _VALUES[:-2]}]}).encode()
        case "twice":
            body = json.dumps(_twice(answer)).encode()
        case "cut" if path != "/jobs/overview":
            transfer = Transfer(cut_at=draw(st.integers(0, len(body) - 1)))
        case "sent" if path not in ("/jobs/overview", "/overview"):
            body, transfer = draw(
                st.sampled_from(
                    [
                        (b"<html>proxy</html>", Transfer(kind="text/html")),
                        (body, Transfer(kind="text/html; charset=latin-1")),
                        (b"", Transfer()),
                        (b"", Transfer(204)),
                        (b"[]", Transfer(500)),
                        (b'{"errors": [7, null, "\\u0000"]}', Transfer(503)),
                        (b'{"errors": "' + b"x" * 50_000 + b'"}', Transfer(400)),
                        (b" " * (BODY_LIMIT + 1), Transfer()),
                        (body, Transfer(drips=True)),
                        (b"", Transfer(301)),
                    ]
                )
            )
    return Wrong(kind, path, body, transfer)


def _twice(value: Any) -> Any:
    """Repeat the first entry of every list."""
    if isinstance(value, dict):
        return {key: _twice(child) for key, child in value.items()}
    return [*map(_twice, value), *value[:1]] if isinstance(value, list) else value


def rows_of(job_id: str) -> dict[str, Any]:
    """Return all stored values of the job's only run, without keys and Waymark's times."""
    run = Run.objects.get(engine_job_id=job_id, superseded=False)
    checkpoints = {row.checkpoint_id: row for row in Checkpoint.objects.filter(run=run)}
    return {
        "run": _plain(run, "state", "vertices", "checkpoint_config", "counts", "summary", "restored_checkpoint_id"),
        "checkpoints": {number: _plain(row, *_columns(row)) for number, row in checkpoints.items()},
        "operators": {
            (number, each.vertex_id): _plain(each, *_columns(each))
            for number, row in checkpoints.items()
            for each in OperatorCheckpoint.objects.filter(checkpoint=row)
        },
    }


def _plain(row: Any, *columns: str) -> dict[str, Any]:
    return {column: getattr(row, column) for column in columns}


def _columns(row: Any) -> list[str]:
    keys = {"id", "run", "checkpoint", "first_seen_at", "pk"}
    return [name for name in model_to_dict(row) if name not in keys]


class Ticks:
    """A source of polls two minutes apart, each with a new poller."""

    def __init__(self, engine: AnsweringEngine) -> None:
        self._now = timezone.now()
        self._engine = engine

    def __call__(self) -> None:
        self._now += timedelta(seconds=130)
        with Poller(self._clock, self._client) as poller:
            poller.start_due()
            while poller.in_flight:
                poller.serve(30.0)

    def _clock(self) -> datetime:
        return self._now

    def _client(self, connection: Connection) -> FlinkClient:
        return _Client(connection, self._engine)


class _Client(FlinkClient):
    """A client with long time limits, except for an answer that is sent byte by byte."""

    def __init__(self, connection: Connection, engine: AnsweringEngine) -> None:
        super().__init__(connection, read_limit_s=READ_LIMIT_S, command_limit_s=DRIPS_FOR_S, body_limit=BODY_LIMIT)
        self._engine = engine

    async def _read(
        self, method: str, path: str, limit_s: float, *, content: bytes | None = None, kind: str | None = None
    ) -> bytes:
        drips = path in self._engine.transfers and self._engine.transfers[path].drips
        return await super()._read(method, path, DRIPS_FOR_S if drips else limit_s, content=content, kind=kind)


@pytest.fixture(scope="module")
def engine() -> Iterator[AnsweringEngine]:
    with answering_engine() as running:
        yield running


@pytest.mark.django_db
def test_a_wrong_answer_affects_only_its_object(
    engine: AnsweringEngine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "FIGURES_FOR_S", FIGURES_FOR_S)
    tick = Ticks(engine)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data: st.DataObject) -> None:
        caplog.clear()
        sick, well = uuid.uuid4().hex, uuid.uuid4().hex
        answers = answers_of([sick, well])
        wrong = data.draw(wrong_answers({path: answer for path, answer in answers.items() if well not in path}))
        Cluster.objects.update(enabled=False)
        cluster = Cluster.objects.create(name=uuid.uuid4().hex, rest_url=engine.url)
        engine.serve(answers)
        engine.bodies[wrong.path], engine.transfers[wrong.path] = wrong.body, wrong.transfer

        tick()

        cluster.refresh_from_db()
        _assert_poll_is_explained(cluster, wrong, caplog)
        if cluster.reachable:
            _assert_whole(rows_of(well))
        engine.serve(answers)
        tick()
        tick()
        cluster.refresh_from_db()
        assert (cluster.reachable, cluster.last_error) == (True, "")
        _assert_whole(rows_of(well))
        _assert_same_rows(rows_of(sick), rows_of(well), wrong)

    check()


def _assert_poll_is_explained(cluster: Cluster, wrong: Wrong, caplog: pytest.LogCaptureFixture) -> None:
    """Assert that the poll did not crash. Only an answer that all jobs need may make the cluster unreachable."""
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    if not cluster.reachable:
        assert wrong.path == "/jobs/overview" or (wrong.path == "/overview" and wrong.what in ("cut", "sent"))
        assert cluster.last_error


def _assert_whole(rows: dict[str, Any]) -> None:
    assert len(rows["checkpoints"]) == 3
    assert len(rows["operators"]) == 6
    assert all(row["final"] for row in rows["checkpoints"].values())


def _assert_same_rows(sick: dict[str, Any], well: dict[str, Any], wrong: Wrong) -> None:
    """Assert that the rows of both jobs agree, except for values from the wrong answer and missing values."""
    assert sick["checkpoints"].keys() >= well["checkpoints"].keys()
    for table in ("checkpoints", "operators"):
        for key, expected in well[table].items():
            stored = sick[table].get(key, {})
            different = {name: value for name, value in stored.items() if value != expected[name]}
            different.pop("position", None)  # the position in the wrong answer's list of vertices
            if table == "operators" and different.get("name") == key[1]:
                del different["name"]  # the ID stands for the name if the job's answer was wrong
            if wrong.what != "value":
                invented = {name: value for name, value in different.items() if _invents(value, expected[name])}
                assert not invented, (key, invented)


def _invents(value: Any, expected: Any) -> bool:
    """Return whether a value has data that no answer contained. In a list, entries may be missing."""
    if isinstance(value, list) and isinstance(expected, list) and len(value) == len(expected):
        return any(map(_invents, value, expected))
    if isinstance(value, list):
        return any(_invents(each, None) for each in value)
    return bool(value) and value != expected
