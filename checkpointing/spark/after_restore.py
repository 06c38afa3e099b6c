"""What happens to a query's output after the restore of an older state, by its sink (decision 132).

The batches after the restored state are computed again, and written with new numbers. No sink loses a row by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpointing.jobs.restore import BATCH_NUMBERS
from checkpointing.model.messages import AfterRestore
from checkpointing.spark.plan import Sink, function_of, output_mode
from checkpointing.spark.program import ProgramError

_OF_FUNCTIONS = ("foreachbatch", "foreach")
_HOLDS_NOTHING = ("memory", "console", "noop")


def after_restore(writer: Any, sink: Sink, *, exactly_once: bool = True) -> AfterRestore:
    """Return the class of a query's sink. A foreachBatch function says by an attribute `goes_back` that it is exact.

    Unless the job runs `exactly_once`, the rows of Spark's file sink stay.
    """
    is_rewound = sink.path is not None and exactly_once
    if is_rewound or getattr(function_of(writer), "goes_back", False):
        return AfterRestore.GOES_BACK
    if sink.format.lower() in _HOLDS_NOTHING or str(output_mode(writer)).lower() == "complete":
        return AfterRestore.REPLACED
    return AfterRestore.WRITTEN_AGAIN


def repeats_numbers(query: str, sink: Sink, options: Mapping[str, str]) -> bool:
    """Return whether a restore keeps the query's batch numbers, for a function that replaces the rows of a number.

    ProgramError if the option is not possible.
    """
    asked = options.get(BATCH_NUMBERS)
    if asked is None:
        return False
    if asked != "repeat":
        raise ProgramError(f"{BATCH_NUMBERS}: {asked!r} of query {query!r} is not allowed; repeat is")
    if sink.format.lower() not in _OF_FUNCTIONS:
        raise ProgramError(
            f"{BATCH_NUMBERS}: {asked!r} is not possible for query {query!r}, which writes to {sink.format}: its sink "
            "would skip rows after a restore. The option is for foreachBatch and foreach."
        )
    return True
