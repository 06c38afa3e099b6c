"""Runs a user's program on a separate thread, and collects the queries that it starts.

    collecting → the program waits for a query, or ends → settled → the driver has started the queries → begun

A program that waits for its queries (`awaitTermination()`) continues when they have ended by themselves.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from checkpointing.spark.program import ProgramError

if TYPE_CHECKING:
    from checkpointing.spark.running_query import RunningQuery

log = logging.getLogger(__name__)

_REMIND_S = 60.0
_LATE = (
    "The program started a query after its other queries were already running. Start all queries before the program "
    "first waits for one of them (awaitTermination, lastProgress and so on), and none within the function of "
    "foreachBatch."
)


class StartedQuery(Protocol):
    """The object that `start()` returned to the program. `running` is set when the driver has started the query."""

    writer: Any
    name: str
    running: RunningQuery | None
    has_ended: bool


class ProgramRun:
    """One run of a program. Any thread may call it.

    Only `until_settled`, `begin` and `note_ended` belong to the driver's main thread.
    """

    def __init__(self, call: Callable[[], Any], known_id: Callable[[str], str | None] = lambda name: None) -> None:
        """Create a run. `known_id` returns the ID of a query that has run before, by its name."""
        self._call = call
        self._known_id = known_id
        self._ids: dict[str, str] = {}
        self._thread = threading.Thread(target=self._run, name="program", daemon=True)
        self._changed = threading.Condition()
        self._queries: list[StartedQuery] = []
        self._is_settled = False
        self._has_begun = False
        self._has_ended = False
        self._returned: Any = None
        self._error: Exception | None = None

    # --- the driver ---

    def until_settled(self) -> Any:
        """Run the program until it waits for a query or ends. Return its result, or raise its exception."""
        self._thread.start()
        while not self.wait_for(lambda: self._is_settled, _REMIND_S):
            log.info("the program neither ends nor waits; it has started %d queries so far", len(self._queries))
        if self._error is not None:
            raise self._error
        return self._returned

    def begin(self, queries: Sequence[RunningQuery]) -> None:
        """Let the program use its queries: the driver has started them."""
        by_name = {query.name: query for query in queries}
        with self._changed:
            for query in self._queries:
                query.running = by_name[query.name]
            self._has_begun = True
            self._changed.notify_all()

    def note_ended(self, name: str) -> None:
        """Wake the program if it waits for this query, which has ended without a failure."""
        with self._changed:
            for query in self._queries:
                if query.name == name:
                    query.has_ended = True
            self._changed.notify_all()

    @property
    def ids(self) -> Mapping[str, str]:
        """Return the IDs that the program has read, by the query's name."""
        return dict(self._ids)

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    @property
    def error(self) -> Exception | None:
        return self._error

    # --- the program ---

    @property
    def queries(self) -> tuple[StartedQuery, ...]:
        return tuple(self._queries)

    @property
    def is_current(self) -> bool:
        """Return whether the caller is the program's own thread."""
        return threading.current_thread() is self._thread

    def add(self, query: StartedQuery) -> None:
        """Add a query that the program starts. Raise ProgramError if it is too late for that."""
        with self._changed:
            if self._is_settled:
                raise ProgramError(_LATE)
            if any(query.writer is other.writer for other in self._queries):
                raise ProgramError("The program starts the same writer twice; make a writer for each query.")
            self._queries.append(query)

    def id_of(self, name: str) -> str | None:
        """Return the ID that the query will have. Return None if the run is settled and the ID was never requested."""
        with self._changed:
            if name not in self._ids and not self._is_settled:
                self._ids[name] = self._known_id(name) or str(uuid.uuid4())
            return self._ids.get(name)

    def settle(self) -> None:
        """Mark the run as settled: the program waits for a query or inspects one, so it has started all its queries."""
        with self._changed:
            self._is_settled = True
            self._changed.notify_all()

    def wait_until_begun(self) -> None:
        self.settle()
        self.wait_for(lambda: self._has_begun)

    def wait_for(self, is_so: Callable[[], bool], timeout_s: float | None = None) -> bool:
        with self._changed:
            return self._changed.wait_for(is_so, timeout_s)

    def _run(self) -> None:
        try:
            self._returned = self._call()
        except Exception as error:  # noqa: BLE001 - the driver's main thread raises it
            self._error = error
        finally:
            with self._changed:
                self._has_ended = True
                self._is_settled = True
                self._changed.notify_all()
