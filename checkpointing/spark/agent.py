"""Takes the job's checkpoints: waits for each query's batch boundary, links and stores the files, and acknowledges.

After the trigger, each query of a job is cut at its own next boundary, and all queries wait at the same time. But if
one query feeds another (channels.py), the producer is cut only after its consumers. This is why the result is one
consistent cut:

1. A consumer is cut at batch b once `commits/b` exists, and its files are linked. All input that it had read by then,
   and all that its source's log may list beyond b, was already in the channel.
2. Only then the agent reads the producer's newest batch n, running or ended. All that the producer had put into the
   channel by then belongs to n or to earlier batches, because a batch's offsets are written before it runs. This
   includes entries in the sink's log whose commit is still missing.
3. The producer is cut at the end of n, so its cut contains all input that the consumer may have read.

The output up to n that the consumer had not read by b is in the channel, which is durable. The manifest names both
ends. A synchronous savepoint ends the queries in the same order, for the same reason.

The main thread calls everything here. One worker thread computes the files' checksums, stores the files, and returns
each finished subtask through a queue.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from checkpointing.checkpoint_location.file_store import FileChecksums
from checkpointing.checkpoint_location.layout import IncompleteBatch
from checkpointing.clock import Clock
from checkpointing.model.messages import Channel, CheckpointKind, SubtaskMetrics, TriggerCheckpoint, VertexKind
from checkpointing.spark.query_plan import QueryPlan
from checkpointing.spark.snapshot import DurableSubtask, PoolLedger, SnapshotWriter
from checkpointing.spark.staging import QueryFiles, StagedBatch, stage
from checkpointing.spark.task_metrics import BatchFigures, Wait, subtask_metrics
from checkpointing.spark.uploads import Uploads
from checkpointing.storage.opening import files_for

log = logging.getLogger(__name__)

# The event log is slightly behind a batch's commit. After this time the agent acknowledges without the batch's figures.
FIGURES_WAIT_S = 10.0
# Spark's maintenance may delete files during a listing. Files that are still missing after this time are lost.
STAGING_LIMIT_S = 2.0
# The agent reports what a checkpoint waits for after this time, and again whenever that changes.
_WORTH_TELLING_S = 1.0
ASYNC_EXCEPTION = "CHECKPOINT_ASYNC_EXCEPTION"
NOT_READY = "CHECKPOINT_DECLINED_TASK_NOT_READY"


class Query(Protocol):
    """The methods of a running query that the agent uses."""

    @property
    def name(self) -> str: ...

    @property
    def files(self) -> QueryFiles: ...

    @property
    def is_active(self) -> bool: ...

    def start(self) -> None: ...

    def end_after_batch(self) -> None: ...

    def has_ended(self) -> bool: ...

    def doing(self) -> str: ...

    def progress(self) -> object:
        """Return a value that changes while the query's batch computes."""
        ...


@dataclass(frozen=True)
class Acknowledged:
    """The acknowledgement of a subtask. `batch` is None if the query ended without ever committing one.

    `channels`: which output of other queries the subtask reads, and how far it has read.
    """

    durable: DurableSubtask
    metrics: SubtaskMetrics
    batch: int | None
    channels: tuple[Channel, ...] = ()


class Reports(Protocol):
    """Receives the agent's results, and provides the figures of a batch, or None while they are not known yet."""

    def acknowledge(self, checkpoint_id: int, acknowledged: Acknowledged) -> None: ...

    def delay(self, checkpoint_id: int, cause: str, silent_ms: int | None) -> None: ...

    def decline(self, checkpoint_id: int, reason: str, cause: str) -> None: ...

    def figures(self, query: str, batch: int) -> BatchFigures | None: ...


@dataclass
class _Cut:
    """The cut of one query for one checkpoint. `barrier_s` is monotonic.

    `barrier`: the batch at whose end the query is cut. None before the query's turn, or if it has started no batch.
    `progress`: the query's figures when they last changed, at `progressed_s`.
    `ending`: the query was asked to end after its batch. `batch`: the batch at which it was cut.
    `failing_since_s`: when staging first failed.
    `is_empty`: the query ended without ever committing a batch, so there is nothing to cut.
    """

    query: Query
    barrier: int | None = None
    ending: bool = False
    batch: int | None = None
    barrier_s: float = 0.0
    wait: Wait | None = None
    figures: BatchFigures | None = None
    channels: tuple[Channel, ...] = ()
    failing_since_s: float | None = None
    is_empty: bool = False
    owed: int = 0
    progress: object = None
    progressed_s: float = 0.0

    @property
    def waits_for_batch(self) -> bool:
        return self.batch is None and self.barrier is not None and self.failing_since_s is None

    @property
    def is_cut(self) -> bool:
        return self.batch is not None or self.is_empty


@dataclass(frozen=True)
class _Done:
    """A result of the worker thread: a durable subtask, or the `cause` of a failure."""

    cut: _Cut | None
    durable: DurableSubtask | None
    async_ms: int = 0
    cause: str = ""


@dataclass
class _Take:
    trigger: TriggerCheckpoint
    started_s: float
    cuts: list[_Cut]
    staging: Path
    over: bool = False
    reported: tuple[str, bool] = ("", False)
    next_report_s: float = 0.0
    results: queue.SimpleQueue[_Done] = field(default_factory=queue.SimpleQueue)
    unsent: list[_Done] = field(default_factory=list)

    @property
    def is_synchronous(self) -> bool:
        return self.trigger.kind is CheckpointKind.SYNC_SAVEPOINT


class CheckpointAgent:
    """Takes checkpoints. The driver calls `tick` every 20 ms or so while `is_busy`.

    `uploads` moves large state to remote storage. `checksums` holds the known checksums of the queries' files.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        reports: Reports,
        staging: Path,
        clock: Clock,
        uploads: Uploads | None = None,
        checksums: FileChecksums | None = None,
    ) -> None:
        self._queries = queries
        self._reports = reports
        self._staging = staging
        self._clock = clock
        self._uploads = uploads
        self._checksums = checksums or FileChecksums()
        self._pool = PoolLedger()
        self._takes: dict[int, _Take] = {}
        self._ended_for: int | None = None
        self._to_start_again: list[Query] = []
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="snapshot")

    @property
    def is_busy(self) -> bool:
        return bool(self._to_start_again) or any(not take.over for take in self._takes.values())

    @property
    def has_ended_queries(self) -> bool:
        """Return whether a synchronous savepoint ends or has ended the queries. Then no inactive query has failed."""
        return self._ended_for is not None

    def trigger(self, message: TriggerCheckpoint) -> None:
        if self._ended_for is not None:
            cause = f"The queries have ended for savepoint {self._ended_for}."
            self._reports.decline(message.checkpoint_id, "CHECKPOINT_DECLINED_TASK_CLOSING", cause)
            return
        cuts = [_Cut(q, owed=sum(vertex.parallelism for vertex in q.files.plan.vertices)) for q in self._queries]
        staging = self._staging / f"chk-{message.checkpoint_id}"
        now_s = self._clock.monotonic()
        take = _Take(message, now_s, cuts, staging, next_report_s=now_s + _report_pause_s(message))
        self._takes[message.checkpoint_id] = take
        if take.is_synchronous:
            self._ended_for = message.checkpoint_id
        self.tick()

    def completed(self, checkpoint_id: int) -> None:
        take = self._takes.pop(checkpoint_id, None)
        if take is not None:
            take.over = True
            self._worker.submit(self._clean, take)

    def aborted(self, checkpoint_id: int) -> None:
        """Remove what the aborted checkpoint left. Start the queries again if it had ended them."""
        take = self._takes.pop(checkpoint_id, None)
        if take is None:
            return
        take.over = True
        self._worker.submit(self._clean, take)
        if self._ended_for == checkpoint_id:
            self._to_start_again = [cut.query for cut in take.cuts if cut.ending]
            self._run_on()

    def only_pending(self, checkpoint_ids: Sequence[int]) -> None:
        """Drop all checkpoints that the job manager no longer knows. Called after the driver has registered again."""
        for checkpoint_id in set(self._takes) - set(checkpoint_ids):
            self.aborted(checkpoint_id)

    def tick(self) -> None:
        for take in [take for take in self._takes.values() if not take.over]:
            for cut in take.cuts:
                if not cut.is_cut and not take.over:
                    self._find_boundary(take, cut)
                if cut.batch is not None and cut.figures is None:
                    cut.figures = self._reports.figures(cut.query.name, cut.batch)
            self._acknowledge(take)
            self._report_wait(take)
        if self._to_start_again:
            self._run_on()

    def close(self) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)

    # --- the barrier ---

    def _find_boundary(self, take: _Take, cut: _Cut) -> None:
        if _uncut_consumers(take, cut):
            return
        if not cut.query.is_active and cut.query.files.last_commit() is None:
            self._acknowledge_empty(take, cut)
            return
        batch = self._ended_at(cut) if take.is_synchronous else self._boundary(cut)
        if batch is not None:
            self._cut(take, cut, batch)

    def _boundary(self, cut: _Cut) -> int | None:
        """Return the batch at which the query is cut, once that batch has ended.

        A query that is idle at its turn is cut at its last batch. So is a query that has ended, because it may have
        ended within a batch, which is never committed.
        """
        if not cut.query.is_active:
            cut.barrier = cut.query.files.last_commit()
        elif cut.barrier is None:
            cut.barrier = cut.query.files.next_boundary()
        elif cut.failing_since_s is not None:
            cut.barrier = cut.query.files.last_commit()
        if cut.barrier is None or not cut.query.files.has_committed(cut.barrier):
            return None
        return cut.barrier

    def _ended_at(self, cut: _Cut) -> int | None:
        """Return the query's last batch, once the query has ended.

        A query that never committed has nothing to save and runs on.

        A query that has ended by itself is not started again if the savepoint fails, so it is not `ending`.
        """
        if not cut.ending and not cut.query.is_active:
            return cut.query.files.last_commit()
        if not cut.ending:
            if cut.query.files.last_commit() is not None:
                cut.query.end_after_batch()
                cut.ending = True
            return None
        return cut.query.files.last_commit() if cut.query.has_ended() else None

    def _cut(self, take: _Take, cut: _Cut, batch: int) -> None:
        """Link the batch's files. If some of them are gone, try later batches of the query for a limited time."""
        files, now_s = cut.query.files, self._clock.monotonic()
        try:
            staged = stage(files, batch, take.staging / _directory_name(take, cut))
            channels = staged.channels()
        except (OSError, IncompleteBatch, ValueError) as error:
            cut.failing_since_s = now_s if cut.failing_since_s is None else cut.failing_since_s
            may_pass = isinstance(error, FileNotFoundError | IncompleteBatch)
            if not may_pass or now_s - cut.failing_since_s >= STAGING_LIMIT_S:
                self._fail(take, f"Batch {batch} of query {files.query!r} cannot be taken: {error}")
            return
        cut.batch, cut.barrier_s, cut.channels = batch, now_s, channels
        waited_ms = round((now_s - take.started_s) * 1000)
        if waited_ms > 0:
            now = self._clock.now_ms()
            cut.wait = Wait(now - waited_ms, now)
        self._worker.submit(self._write, take, cut, staged)

    def _acknowledge_empty(self, take: _Take, cut: _Cut) -> None:
        """Acknowledge a query without any batch. A restore then starts it without state, like a query that is new."""
        cut.is_empty = True
        for vertex in cut.query.files.plan.vertices:
            for subtask in range(vertex.parallelism):
                nothing = DurableSubtask(vertex, subtask, files=(), new_bytes=0)
                self._reports.acknowledge(take.trigger.checkpoint_id, Acknowledged(nothing, SubtaskMetrics(), None))
        cut.owed = 0

    # --- on the worker's thread ---

    def _write(self, take: _Take, cut: _Cut, staged: StagedBatch) -> None:
        plan = staged.files.plan
        try:
            writer = SnapshotWriter(
                take.trigger,
                self._checksums,
                self._pool,
                self._uploads,
                is_over=lambda: take.over,
            )
            with contextlib.closing(writer.write(staged)) as subtasks:
                for durable in subtasks:
                    if take.over:
                        return
                    async_ms = round((self._clock.monotonic() - cut.barrier_s) * 1000)
                    take.results.put(_Done(cut, durable, async_ms))
        except Exception as error:  # noqa: BLE001 - the worker's edge: any exception declines the checkpoint
            cause = f"Batch {cut.batch} of query {plan.query!r} cannot be written: {error}"
            take.results.put(_Done(None, None, cause=cause))
        finally:
            shutil.rmtree(staged.directory, ignore_errors=True)

    def _clean(self, take: _Take) -> None:
        for location in self._pool.aborted(take.trigger.checkpoint_id):
            try:
                files_for(location).remove_file(location)
            except OSError as error:
                log.warning("checkpoint %d leaves a file behind: %s", take.trigger.checkpoint_id, error)
        shutil.rmtree(take.staging, ignore_errors=True)

    # --- results ---

    def _acknowledge(self, take: _Take) -> None:
        while not take.results.empty():
            done = take.results.get()
            if done.durable is None:
                self._fail(take, done.cause)
                return
            take.unsent.append(done)
        take.unsent = [done for done in take.unsent if not self._sent(take, done)]
        if all(cut.owed == 0 for cut in take.cuts):
            take.over = True

    def _sent(self, take: _Take, done: _Done) -> bool:
        """Send the subtask's acknowledgement. Return False while the figures of the batch may still arrive."""
        cut, durable = done.cut, done.durable
        assert cut is not None  # noqa: S101 - failures were handled before
        assert durable is not None  # noqa: S101
        assert cut.batch is not None  # noqa: S101
        if cut.figures is None and self._clock.monotonic() - cut.barrier_s < FIGURES_WAIT_S:
            return False
        if cut.figures is None:
            log.warning("the figures of batch %d of %s are not known", cut.batch, cut.query.name)
        plan = cut.query.files.plan
        kind, index = _place(plan, durable)
        metrics = replace(
            subtask_metrics(kind, index, durable.subtask, cut.figures, cut.wait),
            async_duration=done.async_ms,
            checkpointed_size=durable.new_bytes,
            state_size=durable.size,
        )
        pool = take.trigger.shared_directory
        shared = [f"{pool}/{file.checksum}" for file in durable.files if file.shared]
        self._worker.submit(self._pool.acknowledged, shared)
        channels = tuple(c for c in cut.channels if _is_read_by(c, kind, index))
        self._reports.acknowledge(take.trigger.checkpoint_id, Acknowledged(durable, metrics, cut.batch, channels))
        cut.owed -= 1
        return True

    def _report_wait(self, take: _Take) -> None:
        now_s = self._clock.monotonic()
        if take.over or now_s < take.next_report_s:
            return
        take.next_report_s = now_s + _report_pause_s(take.trigger)
        awaited = " ".join(_wait_reason(take, cut) for cut in take.cuts if cut.owed)
        batches = [cut for cut in take.cuts if cut.waits_for_batch]
        have_progressed = [_has_progressed(cut, now_s) for cut in batches]
        report = (awaited, bool(batches))
        if report != take.reported or any(have_progressed):
            take.reported = report
            silent_s = max((now_s - cut.progressed_s for cut in batches), default=None)
            silent_ms = None if silent_s is None else round(silent_s * 1000)
            self._reports.delay(take.trigger.checkpoint_id, awaited, silent_ms)

    def _fail(self, take: _Take, cause: str) -> None:
        checkpoint_id = take.trigger.checkpoint_id
        log.warning("checkpoint %d: %s", checkpoint_id, cause)
        self._reports.decline(checkpoint_id, ASYNC_EXCEPTION, cause)
        self.aborted(checkpoint_id)

    def _run_on(self) -> None:
        """Start the queries again that an aborted savepoint ended. A query that was asked to end must end first."""
        waiting = []
        for query in self._to_start_again:
            if query.has_ended():
                query.start()
            else:
                waiting.append(query)
        self._to_start_again = waiting
        if not waiting:
            self._ended_for = None


def _report_pause_s(trigger: TriggerCheckpoint) -> float:
    """Return a fraction of the timeout, so that progress is known before the checkpoint expires."""
    return min(_WORTH_TELLING_S, trigger.timeout_ms / 1000 / 4)


def _has_progressed(cut: _Cut, now_s: float) -> bool:
    progress = cut.query.progress()
    if progress == cut.progress:
        return False
    cut.progress, cut.progressed_s = progress, now_s
    return True


def _uncut_consumers(take: _Take, cut: _Cut) -> list[str]:
    name = cut.query.name
    return [
        other.query.name
        for other in take.cuts
        if not other.is_cut and any(channel.producer == name for channel in other.query.files.inputs)
    ]


def _wait_reason(take: _Take, cut: _Cut) -> str:
    """Return a sentence for people: which query is awaited, and what it has yet to do."""
    query = f"Query {cut.query.name!r}"
    if cut.batch is not None:
        return f"{query} is cut at batch {cut.batch}; {cut.owed} of its subtasks have yet to be saved."
    if consumers := _uncut_consumers(take, cut):
        return f"{query} waits its turn behind {' and '.join(map(repr, consumers))}, which read its output."
    if cut.failing_since_s is not None:
        return f"{query} lacks files of batch {cut.barrier}."
    if cut.barrier is None and not cut.ending:
        return f"{query} has never ended a batch; Spark says: {cut.query.doing()}."
    batch = "its batch" if cut.barrier is None else f"batch {cut.barrier}"
    return f"{query} has not come to the end of {batch}; Spark says: {cut.query.doing()}."


def _is_read_by(channel: Channel, kind: VertexKind, index: int) -> bool:
    """Return whether the source reads the channel. A channel that the program declared belongs to the first source."""
    return (kind, index) == (VertexKind.SOURCE, channel.source or 0)


def _directory_name(take: _Take, cut: _Cut) -> str:
    return str(take.cuts.index(cut))


def _place(plan: QueryPlan, durable: DurableSubtask) -> tuple[VertexKind, int]:
    return next(owner for owner, vertex in plan.by_owner.items() if vertex.id == durable.vertex.id)
