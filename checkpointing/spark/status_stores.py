"""Reads Spark's own status stores: the executors, the progress of a query's tasks, and the task that failed it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from checkpointing.clock import Clock
from checkpointing.model.messages import Executor
from checkpointing.spark_internals import (
    STAGE_STATUS,
    gateway,
    jvm_class,
    jvm_view,
    scala_list,
    sql_status_store,
    status_store,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READ_INTERVAL_S = 10.0
# A foreachBatch function may run its own SQL within the batch's. The last executions are the running ones.
_EXECUTIONS = 20
# With this frame in a stack trace, the exception was raised in a task, not in the driver.
_IN_A_TASK = "org.apache.spark.scheduler.Task"
_STORE_LAGS_S = 2.0
_LOOK_S = 0.05
_MOST_TASKS = 1000


class Executors:
    """The executors, read at most every ten seconds, because each read costs a few calls into the JVM."""

    def __init__(self, spark: SparkSession, clock: Clock) -> None:
        self._store = status_store(spark)
        self._clock = clock
        self._known: tuple[Executor, ...] = ()
        self._last_read_s = float("-inf")

    def latest(self) -> tuple[Executor, ...]:
        now = self._clock.monotonic()
        if now - self._last_read_s >= _READ_INTERVAL_S:
            self._last_read_s = now
            self._known = tuple(self._read_executors())
        return self._known

    def _read_executors(self) -> list[Executor]:
        """Return the live executors that can run tasks. On a cluster the driver itself runs none."""
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


def failed_task(spark: SparkSession, run_id: str, stacktrace: str, clock: Clock) -> str | None:
    """Return `task 1 of stage 4 (executor 0 on 10.0.0.7)`, or None if no task raised it or the store lost it.

    Spark passes on the task's exception without the task's name. `run_id` is the query's. The store is slightly behind
    the failure, so this waits for it.
    """
    if _IN_A_TASK not in stacktrace:
        return None
    deadline = clock.monotonic() + _STORE_LAGS_S
    while clock.monotonic() < deadline:
        for found in _failed_tasks(spark, run_id):
            return found
        threading.Event().wait(_LOOK_S)
    return None


def _failed_tasks(spark: SparkSession, run_id: str) -> Iterator[str]:
    """Yield the failed tasks of this run of the query, newest stage first."""
    jvm, store = jvm_view(spark), status_store(spark)
    failed = jvm.java.util.ArrayList()
    failed.add(jvm_class(spark, STAGE_STATUS).FAILED)
    no_quantiles = gateway().new_array(jvm.double, 0)
    stages = scala_list(store.stageList(failed, False, False, no_quantiles, jvm.java.util.ArrayList()))
    ours = [stage for stage in stages if run_id in str(stage.description())]
    for stage in sorted(ours, key=lambda stage: -int(stage.stageId())):
        for task in scala_list(store.taskList(stage.stageId(), stage.attemptId(), _MOST_TASKS)):
            if str(task.status()) == "FAILED":
                place = f"executor {task.executorId()} on {task.host()}"
                yield f"task {task.index()} of stage {stage.stageId()} ({place})"


def task_progress(spark: SparkSession, run_id: str) -> tuple[tuple[int, str], ...]:
    """Return figures of the stages and SQL executions that run and may belong to the run `run_id` of a query.

    Executors report the figures of the operators in a running task with their heartbeats. Spark's metrics of the task
    change only when it ends.

    Their description names the run, unless a foreachBatch function described its work itself or used other threads. So
    only those that name another active run are left out.
    """
    others = [str(query.runId) for query in spark.streams.active if str(query.runId) != run_id]
    found = (*_stages(spark), *_executions(spark))
    return tuple((id_, figures) for id_, figures, of in found if not any(run in of for run in others))


def _stages(spark: SparkSession) -> list[tuple[int, str, str]]:
    """Return the id, the number of ended tasks and the description of each active stage."""
    stages = scala_list(status_store(spark).activeStages())
    return [(stage.stageId(), str(stage.numCompleteTasks()), str(stage.description())) for stage in stages]


def _executions(spark: SparkSession) -> list[tuple[int, str, str]]:
    """Return the id, the figures of the operators and the description of each SQL execution that runs."""
    store = sql_status_store(spark)
    last = scala_list(store.executionsList(max(0, store.executionsCount() - _EXECUTIONS), _EXECUTIONS))
    running = [each for each in last if each.completionTime().isEmpty()]
    ids = [each.executionId() for each in running]
    return [
        (id_, store.executionMetrics(id_).toString(), each.description())
        for id_, each in zip(ids, running, strict=True)
    ]
