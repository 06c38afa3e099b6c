"""Every asynchronous operation has one type of result."""

from __future__ import annotations

import pytest

from monitoring.engine.errors import Malformed
from monitoring.engine.fields import Fields
from monitoring.engine.operations import (
    Done,
    Failed,
    InProgress,
    Operation,
    parse,
)

TRACE = "java.util.concurrent.CompletionException: a.B: outer\n\tat x\nCaused by: c.D: no room left\n\tat y"
CAUSE = {"class": "java.util.concurrent.CompletionException", "stack-trace": TRACE}


def answer(status: str, operation: object) -> Fields:
    return Fields({"status": {"id": status}, "operation": operation}, "/operation")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (answer("IN_PROGRESS", None), InProgress()),
        (answer("COMPLETED", {"checkpointId": 7}), Done(7)),
        (answer("COMPLETED", {"failure-cause": CAUSE}), Failed("no room left")),
        (answer("COMPLETED", {"failureCause": CAUSE}), Failed("no room left")),
    ],
)
def test_the_status_of_an_operation_is_parsed(fields: Fields, expected: Operation[int]) -> None:
    assert parse(fields, lambda operation: operation.whole("checkpointId")) == expected


def test_completed_without_a_result_is_none() -> None:
    with pytest.raises(Malformed, match="COMPLETED without a result"):
        parse(answer("COMPLETED", None), lambda operation: None)
