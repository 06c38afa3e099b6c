"""Checks with Spark whether a restored state fits the program, before anything outside of the attempt changes.

Spark compares the schemas when it plans the first batch. So this module plans that batch, with copies of the files that
describe the state, and never runs it.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

from py4j.protocol import Py4JError

from checkpointing.checkpoint_location.schema_paths import hadoop_path, relocate_schemas
from checkpointing.spark.plan import logical_plan, output_mode, session_of
from checkpointing.spark.restore import RestoreRefused
from checkpointing.spark.running_query import PlannedQuery
from checkpointing.spark.state_mismatch import state_mismatch_message
from checkpointing.spark_internals import (
    INCREMENTAL_EXECUTION,
    OFFSETS_METADATA,
    WATERMARK_PROPAGATOR,
    java_session,
    jvm_class,
    jvm_view,
)

log = logging.getLogger(__name__)

# The files that describe the state, without its data.
_DESCRIPTIONS = ("state/*/_metadata", "state/*/_stateSchema", "state/*/0/_metadata", "state/*/0/*/_metadata")


class StateDoesNotFit(RestoreRefused):
    """The state does not fit the program. The text names the operator and what differs."""


def check_state_fits(query: PlannedQuery, batch: int) -> None:
    """Raise StateDoesNotFit if the query, restored after `batch` at its location, cannot continue from its state there.

    Other problems of the query are not detected here. They appear when the query runs.
    """
    from pyspark.errors import PySparkException

    if not (query.location / "state").is_dir():
        return
    with tempfile.TemporaryDirectory(dir=query.location.parent, prefix=".planned-") as directory:
        copy = Path(directory)
        _copy_descriptions(query.location, copy)
        try:
            _plan_next_batch(query, batch, copy)
        except (PySparkException, Py4JError) as error:
            words = state_mismatch_message(str(error), query.plan, query.location)
            if words is not None:
                raise StateDoesNotFit(words) from error
            log.info("whether the state of query %s fits shows when it runs: %s", query.name, str(error)[:500])


def _copy_descriptions(location: Path, copy: Path) -> None:
    for pattern in _DESCRIPTIONS:
        for directory in location.glob(pattern):
            shutil.copytree(directory, copy / directory.relative_to(location), dirs_exist_ok=True)
    relocate_schemas(copy)


def _plan_next_batch(query: PlannedQuery, batch: int, location: Path) -> None:
    spark = session_of(query.writer)
    execution, metadata = jvm_class(spark, INCREMENTAL_EXECUTION), jvm_class(spark, OFFSETS_METADATA)
    jvm = jvm_view(spark)
    random_id = jvm.java.util.UUID.randomUUID
    recorded = (query.location / "offsets" / str(batch)).read_text().splitlines()[1]
    settings = metadata.apply(recorded)
    # A query continues with the settings of its first batch. Settings that are newer than its Spark version are off.
    session = java_session(spark).cloneSession()
    metadata.setSessionConf(settings, session.sessionState().conf())
    defaults = [getattr(execution, f"$lessinit$greater$default${number}")() for number in range(12, 17)]
    execution(
        session,
        logical_plan(query.writer),
        output_mode(query.writer),
        hadoop_path(location / "state"),
        random_id(),
        random_id(),
        batch + 1,
        jvm.scala.Option.apply(settings),
        settings,
        jvm_class(spark, WATERMARK_PROPAGATOR).noop(),
        True,  # the schemas of the first batch after a start are compared
        *defaults,
    ).executedPlan()
