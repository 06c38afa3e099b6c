"""A session of Spark for tests of the agent: it keeps the listener, and a test calls it as Spark does."""

from __future__ import annotations

import importlib.util
import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

AGENT = Path(__file__).parents[2] / "deploy" / "agent" / "waymark_agent.py"


def load_agent() -> ModuleType:
    """Return a new copy of the module, whose limits a test may change."""
    spec = importlib.util.spec_from_file_location("waymark_agent", AGENT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class FakeQuery:
    name: str | None = "orders"
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    runId: uuid.UUID = field(default_factory=uuid.uuid4)  # noqa: N815 - Spark's name


class FakeSpark:
    """`streams` and `conf` of a session. `listener` is what the agent has added."""

    version = "4.3.0"

    def __init__(self, *active: FakeQuery) -> None:
        self.listener: Any = None
        self.conf = SimpleNamespace(get=lambda name, default=None: "shop" if name == "spark.app.name" else default)
        self.streams = SimpleNamespace(active=list(active), addListener=self._add, removeListener=self._remove)

    def _add(self, listener: Any) -> None:
        self.listener = listener

    def _remove(self, listener: Any) -> None:
        assert listener is self.listener
        self.listener = None

    def start(self, query: FakeQuery) -> FakeQuery:
        self.listener.onQueryStarted(_event(query, name=query.name, timestamp="2026-11-26T12:00:00.000Z"))
        return query

    def batch(self, query: FakeQuery, number: int, **fields: Any) -> None:
        progress = {
            "id": str(query.id),
            "runId": str(query.runId),
            "name": query.name,
            "timestamp": "2026-11-26T12:00:00.000Z",
            "batchId": number,
            "batchDuration": 5,
            "durationMs": {"triggerExecution": 5},
            "stateOperators": [],
            "sources": [],
            "sink": {"description": "noop"},
        } | fields
        ids = {"id": query.id, "runId": query.runId, "name": query.name}
        seen = SimpleNamespace(**ids, json=json.dumps(progress), batchDuration=5)
        self.listener.onQueryProgress(SimpleNamespace(progress=seen))

    def idle(self, query: FakeQuery) -> None:
        self.listener.onQueryIdle(_event(query, timestamp="2026-11-26T12:00:09.000Z"))

    def end(self, query: FakeQuery, exception: str | None = None) -> None:
        self.listener.onQueryTerminated(_event(query, exception=exception))


def _event(query: FakeQuery, **fields: Any) -> SimpleNamespace:
    return SimpleNamespace(id=query.id, runId=query.runId, **fields)
