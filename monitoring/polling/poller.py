"""The poller of one process. A network thread polls clusters on an event loop; the caller's thread accesses rows.

                    claims, snapshots, stores                requests, answers
      caller's thread  ── flights start ──────────────▶  network thread: one event loop,
      (one connection)  ◀── "look this up", "store this" ──  connections kept open between polls

Neither thread waits for the other's I/O: a cluster that hangs blocks one coroutine, and a slow database delays storing
but not reading. Memory holds only copies of rows, and connections. If the poller is killed, its claims expire and the
next worker continues from the rows.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError

from monitoring.engine import leaders
from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection, connection_of, connection_of_history_server
from monitoring.engine.errors import EngineError
from monitoring.engine.evidence import NoAnswer
from monitoring.models import Cluster
from monitoring.polling.archives import Archives, has_checkpoint, read_archives, sought_runs
from monitoring.polling.claim import Claim, ClaimLost, claim_due, release, renew
from monitoring.polling.known import KnownCluster, Stored, recall, stored_of
from monitoring.polling.observation import ClusterObservation
from monitoring.polling.observe import observe
from monitoring.polling.store import postpone, store
from monitoring.reasons.reason import Reason
from monitoring.reasons.work import WorkReason
from monitoring.selfwatch.ticks import LOG_THROTTLE

log = logging.getLogger(__name__)

FLIGHTS_AT_ONCE = 500

T = TypeVar("T")
Now = Callable[[], datetime]
MakeClient = Callable[[Connection], FlinkClient]


@dataclass(frozen=True)
class _Connected:
    client: FlinkClient
    connection: Connection


class Poller:
    """A context manager. Only the thread that enters it may use it."""

    def __init__(self, now: Now, make_client: MakeClient = FlinkClient) -> None:
        self._now = now
        self._make_client = make_client
        self._loop = asyncio.new_event_loop()
        self._network = threading.Thread(target=self._loop.run_forever, name="poller-network", daemon=True)
        self._database_work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._flights: dict[Claim, Future[None]] = {}
        self._known: dict[int, KnownCluster] = {}
        self._clients: dict[int, _Connected] = {}  # used by the network thread only
        self._changes: list[Reason] = []

    def __enter__(self) -> Self:
        self._network.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End every flight and give its claim back, so that the next worker can poll at once."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._network.join()
        self._loop.close()
        leaders.forget_all()
        with suppress(DatabaseError, InterfaceError):  # if the claims cannot be released, they expire
            release(self._flights.keys())

    @property
    def in_flight(self) -> int:
        return len(self._flights)

    def start_due(self) -> None:
        """Claim due clusters and start their flights."""
        free = FLIGHTS_AT_ONCE - len(self._flights)
        for claim in claim_due(self._now(), free) if free > 0 else ():
            leaders.follow(claim.cluster, self._now())
            known = recall(claim.cluster, self._known.get(claim.cluster.pk), self._now())
            flight = asyncio.run_coroutine_threadsafe(self._fly(claim, known, self._now()), self._loop)
            self._flights[claim] = flight
            flight.add_done_callback(
                lambda _, claim=claim: self._database_work.put(lambda: self._finish_flight(claim))  # type: ignore[misc]
            )

    def serve(self, limit_s: float) -> list[Reason]:
        """Execute the database work that flights have queued, and return what changed.

        Wait at most `limit_s` for the first.
        """
        try:
            self._database_work.get(timeout=limit_s)()
            while True:
                self._database_work.get_nowait()()
        except queue.Empty:
            pass
        changes, self._changes = self._changes, []
        return changes

    def renew_claims(self) -> None:
        renew(self._flights.keys(), self._now())

    # --- the network thread

    async def _fly(self, claim: Claim, known: KnownCluster, polled_at: datetime) -> None:
        observation = await self._observe(claim, known, polled_at)
        await self._run_in_database_thread(self._write, claim, observation, polled_at)

    async def _observe(self, claim: Claim, known: KnownCluster, polled_at: datetime) -> ClusterObservation:
        async def lookup(job_ids: AbstractSet[str]) -> Stored:
            return await self._run_in_database_thread(stored_of, claim.cluster, job_ids) if job_ids else Stored()

        try:
            client, at_once = await self._client(claim.cluster), claim.cluster.requests_at_once
            observation = await observe(client, known, polled_at, lookup, at_once=at_once)
            if isinstance(observation.answer, NoAnswer) and observation.answer.is_silence:
                observation = await self._with_archives(claim.cluster, observation, observation.answer, polled_at)
        except EngineError as error:
            return ClusterObservation(NoAnswer(error.reason), known)
        if client.scanning is None:
            return observation
        problem = observation.problem or client.scanning.problem
        return replace(observation, scan=client.scanning.stored, problem=problem)

    async def _with_archives(
        self, cluster: Cluster, silent: ClusterObservation, answer: NoAnswer, polled_at: datetime
    ) -> ClusterObservation:
        """Return the observation of a silent cluster with the runs that its History Server shows to have ended."""
        if not cluster.history_server:
            return silent
        sought = await self._run_in_database_thread(sought_runs, cluster)
        if not sought:
            return silent
        try:
            async with self._make_client(connection_of_history_server(cluster)) as client:
                has_one = partial(self._run_in_database_thread, has_checkpoint)
                archives = await read_archives(client, sought, polled_at, has_one, at_once=cluster.requests_at_once)
        except EngineError as error:
            archives = Archives({}, {}, error.reason)
        return replace(silent, answer=archives.added_to(answer), runs=archives.runs)

    async def _client(self, cluster: Cluster) -> FlinkClient:
        """Return the client with open connections, or a new one if the cluster's connection settings changed.

        Raises RequestNotSent.
        """
        connection = connection_of(cluster)
        connected = self._clients.get(cluster.pk)
        if connected is None or connected.connection != connection:
            if connected is not None:
                await connected.client.close()
            connected = self._clients[cluster.pk] = _Connected(self._make_client(connection), connection)
            if connected.client.reported is not None:
                connected.client.reported.in_database = self._run_in_database_thread
        elif connected.client.scanning is not None:
            connected.client.scanning.stored = connection.scan
        return connected.client

    async def _end(self) -> None:
        flights = asyncio.all_tasks() - {asyncio.current_task()}
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
        for connected in self._clients.values():
            await connected.client.close()

    async def _run_in_database_thread(self, work: Callable[..., T], *given: Any) -> T:
        """Execute `work` in the thread with the database connection, and return its result."""
        done: Future[T] = Future()

        def do() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(work(*given))
                except Exception as error:  # noqa: BLE001  (raised again in the flight, which handles it)
                    done.set_exception(error)

        self._database_work.put(do)
        return await asyncio.wrap_future(done)

    # --- the caller's thread

    def _write(self, claim: Claim, observation: ClusterObservation, polled_at: datetime) -> None:
        cluster = claim.cluster
        try:
            changed, self._known[cluster.pk] = store(claim, observation, self._now(), polled_at)
        except ClaimLost:
            self._known.pop(cluster.pk, None)
            changed = WorkReason.POLL_OVERTAKEN(cluster=str(cluster))
        if changed is not None:
            self._changes.append(changed)

    def _finish_flight(self, claim: Claim) -> None:
        flight = self._flights.pop(claim, None)
        error = flight.exception() if flight is not None and not flight.cancelled() else None
        if error is not None:  # one cluster must not stop the others
            self._known.pop(claim.cluster.pk, None)
            self._postpone(claim, error)
            if LOG_THROTTLE.should_log(f"storing {claim.cluster.pk}", type(error).__name__):
                # For a database that is full or restarts, a traceback is of no use.
                trace = None if isinstance(error, OperationalError | InterfaceError) else error
                why = str(error).strip().partition("\n")[0]
                log.error("%s: its answer cannot be stored, and is read again: %s", claim.cluster, why, exc_info=trace)

    def _postpone(self, claim: Claim, error: BaseException) -> None:
        with suppress(ClaimLost, OperationalError):  # if the claim cannot be updated, it expires
            postpone(claim, f"{type(error).__name__}: {error}"[:1000], self._now())
