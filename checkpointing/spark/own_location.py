"""A checkpointLocation that the program names itself. The driver keeps the state in one of its own instead."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from checkpointing.spark.jvm import hadoop_path
from checkpointing.spark.plan import session_of
from checkpointing.spark.program import ProgramError

if TYPE_CHECKING:
    from checkpointing.spark.running_query import PlannedQuery

log = logging.getLogger(__name__)

_SETTING = "spark.sql.streaming.checkpointLocation"


def own_location(writer: Any, options: Mapping[str, str]) -> str | None:
    """Return where Spark would keep the query's state; None where it would not find it again."""
    location = options.get("checkpointlocation")
    root, name = session_of(writer).conf.get(_SETTING, None), options.get("queryname")
    return location or (f"{root}/{name}" if root and name else None)


def refuse_unless_empty(query: PlannedQuery) -> None:
    """Raise ProgramError if the query has run there: without that state it would read its input a second time."""
    if query.own_location is None:
        return
    commits = _commits(session_of(query.writer), query.own_location)
    if commits:
        raise ProgramError(
            f"Query {query.name!r} has its own checkpointLocation {query.own_location}, which has {commits} committed "
            "batches, but the job starts without state. To go on from there, submit the job with "
            f"--from-checkpoint {query.name}={query.own_location}; to start without state, remove the option."
        )
    log.info("query %s: its state is in the job's checkpoints, not in %s", query.name, query.own_location)


def _commits(spark: Any, location: str) -> int:
    path, file_system = hadoop_path(spark, location.rstrip("/") + "/commits")
    if not file_system.exists(path):
        return 0
    names = (str(status.getPath().getName()) for status in file_system.listStatus(path))
    return sum(1 for name in names if re.fullmatch(r"\d+", name))
