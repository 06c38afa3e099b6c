"""Which task it was that failed a query: Spark hands on what the task raised, without its name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from checkpointing.clock import Clock
from checkpointing.spark_internals import STAGE_STATUS, gateway, jvm_class, jvm_view, scala_list, status_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# As a frame of a stack trace: the exception was raised in a task, not in the driver.
_IN_A_TASK = "org.apache.spark.scheduler.Task"
_STORE_LAGS_S = 2.0
_LOOK_S = 0.05
_MOST_TASKS = 1000


def failed_task(spark: SparkSession, run_id: str, stacktrace: str, clock: Clock) -> str | None:
    """`task 1 of stage 4 (executor 0 on 10.0.0.7)`; None when no task raised it, or Spark's status store lost it.

    `run_id` is the query's. The store lags behind the failure by little, which is waited for.
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
    """Of this run of the query, newest stage first."""
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
