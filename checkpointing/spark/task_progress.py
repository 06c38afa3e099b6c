"""Whether a query makes progress, according to Spark's status stores.

Executors report the figures of the operators in a running task with their heartbeats. Spark's metrics of a task itself
change only when the task ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from checkpointing.spark_internals import scala_list, sql_status_store, status_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A foreachBatch function may run SQL of its own within the batch's: the last ones are those that run.
_EXECUTIONS = 20


def task_progress(spark: SparkSession, run_id: str) -> tuple[tuple[int, str], ...]:
    """Return figures of the stages and SQL executions that run and may belong to the run `run_id` of a query.

    Their description names the run, unless a foreachBatch function described its work itself or did it in threads of
    its own. So only those that name another active run are left out.
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
