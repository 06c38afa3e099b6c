"""Uploads staged files to remote storage from the executors, on many machines at a time, in a separate Spark job.

The driver checks every file itself, because an executor may use another storage of the same name. Any problem raises
UploadFailed, and the driver then uploads the files.

The job runs after the queries: its pool gets the processors that no batch needs (`POOLS`), in short tasks.
"""

from __future__ import annotations

import contextlib
import heapq
import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from checkpointing.clock import Clock
from checkpointing.spark import failure
from checkpointing.spark.uploads import Upload, Uploaded, UploadFailed, upload_share
from checkpointing.spark_internals import java_context
from checkpointing.storage.locations import name, parent
from checkpointing.storage.opening import files_for

if TYPE_CHECKING:
    from pyspark import SparkContext

POOL = "waymark-uploads"
# Spark gives a free core to a batch first, because the default pool never reaches its minimum share.
POOLS = f"""<?xml version="1.0"?>
<allocations>
  <pool name="default">
    <schedulingMode>FIFO</schedulingMode><weight>1000</weight><minShare>1000000</minShare>
  </pool>
  <pool name="{POOL}">
    <schedulingMode>FIFO</schedulingMode><weight>1</weight><minShare>0</minShare>
  </pool>
</allocations>
"""
# A longer task would hold a processor for too long and delay a batch that needs it.
_BYTES_OF_A_TASK = 32 * 2**20
_LOOKS_EVERY_S = 0.2


class ExecutorUploads:
    """Uploads by the executors of `context`, one job at a time.

    A job that cannot begin for `patience_s` is cancelled.
    """

    def __init__(self, context: SparkContext, least_bytes: int, clock: Clock, patience_s: float = 30.0) -> None:
        self._context = context
        self.least_bytes = least_bytes
        self._clock = clock
        self._patience_s = patience_s
        # A separate thread isolates the job's properties (its pool, its tag).
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="uploads")

    def bring(self, uploads: Sequence[Upload], what: str, is_over: Callable[[], bool]) -> Sequence[Uploaded]:
        tag = f"{POOL}-{uuid.uuid4().hex}"
        running = self._thread.submit(self._run, uploads, what, tag)
        if self._is_starved(running, tag, is_over) and running.exception() is not None:
            raise UploadFailed(f"no processor core was free for the upload within {self._patience_s:g} s")
        uploaded = running.result()
        _check_arrived({each.path: each.size for each in uploads}, uploaded)
        return uploaded

    def _is_starved(self, running: Future[list[Uploaded]], tag: str, is_over: Callable[[], bool]) -> bool:
        """Wait for the end of the job. Return True if it was cancelled because it could not begin."""
        starved, began, limit_s = False, False, self._clock.monotonic() + self._patience_s
        while not wait([running], _LOOKS_EVERY_S).done:
            began = began or self._has_started()
            starved = not began and self._clock.monotonic() > limit_s
            if starved or is_over():
                with contextlib.suppress(Py4JError):
                    self._context.cancelJobsWithTag(tag)
        return starved

    def _has_started(self) -> bool:
        """Return whether a task runs. Return True if that is unknown, for example with another scheduler."""
        try:
            pool = java_context(self._context).getPoolForName(POOL)
            return not pool.isDefined() or bool(pool.get().runningTasks() > 0)
        except Py4JError:
            return True

    def _run(self, uploads: Sequence[Upload], what: str, tag: str) -> list[Uploaded]:
        from pyspark.errors import PySparkException

        context = self._context
        tasks = shares(uploads, context.defaultParallelism)
        try:
            context.setLocalProperty("spark.scheduler.pool", POOL)
            context.setJobDescription(what)
            context.addJobTag(tag)
            try:
                found: list[Uploaded] = context.parallelize(tasks, len(tasks)).flatMap(upload_share).collect()
            finally:
                context.removeJobTag(tag)
        except (Py4JError, PySparkException, OSError) as error:
            raise UploadFailed(_error_text(error)) from error
        return found


def shares(uploads: Sequence[Upload], processors: int) -> list[list[Upload]]:
    """Return the uploads of each task: all tasks get about the same number of bytes, within a limit."""
    size = sum(each.size for each in uploads)
    count = min(len(uploads), max(processors, -(-size // _BYTES_OF_A_TASK)))
    found: list[list[Upload]] = [[] for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    for upload in sorted(uploads, key=lambda each: each.size, reverse=True):
        filled, number = heapq.heappop(heap)
        found[number].append(upload)
        heapq.heappush(heap, (filled + upload.size, number))
    return found


def _check_arrived(sizes: dict[str, int], uploaded: Sequence[Uploaded]) -> None:
    """Raise UploadFailed unless this process finds every file, with its size."""
    wanted: dict[str, dict[str, int]] = defaultdict(dict)
    for each in uploaded:
        wanted[parent(each.location)][name(each.location)] = sizes.pop(each.path)
    if sizes:
        raise UploadFailed(f"no executor confirmed the upload of {', '.join(sorted(sizes)[:3])}")
    for directory, expected in wanted.items():
        found = files_for(directory).sizes(directory)
        for file, size in expected.items():
            if found.get(file) != size:
                raise UploadFailed(
                    f"an executor uploaded {directory}/{file}, but the driver cannot find it: their storage differs"
                )


def _error_text(error: Exception) -> str:
    found = failure.user_exception(str(error))
    return ": ".join(found) if found is not None else failure.of_exception(error, 0).message.partition("\n")[0]
