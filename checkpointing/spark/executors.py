"""The processes that run the job's tasks, as Spark's own status store knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from checkpointing.clock import Clock
from checkpointing.model.messages import Executor
from checkpointing.spark_internals import scala_list, status_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ASKED_EVERY_S = 10.0


class Executors:
    """Asks Spark every ten seconds at most: each answer costs a few calls into the JVM."""

    def __init__(self, spark: SparkSession, clock: Clock) -> None:
        self._store = status_store(spark)
        self._clock = clock
        self._known: tuple[Executor, ...] = ()
        self._asked_s = float("-inf")

    def latest(self) -> tuple[Executor, ...]:
        now = self._clock.monotonic()
        if now - self._asked_s >= _ASKED_EVERY_S:
            self._asked_s = now
            self._known = tuple(self._ask())
        return self._known

    def _ask(self) -> list[Executor]:
        """Live ones that can run tasks: on a cluster the driver itself runs none."""
        return [
            Executor(
                id=str(each.id()),
                address=str(each.hostPort()),
                cores=int(each.totalCores()),
                max_memory=int(each.maxMemory()),
                used_memory=int(each.memoryUsed()),
                active_tasks=int(each.activeTasks()),
            )
            for each in scala_list(self._store.executorList(True))
            if each.totalCores() > 0
        ]
