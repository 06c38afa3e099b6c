"""The exception history of a job: the newest entries, and whether older ones are missing."""

from __future__ import annotations

from checkpointing.jobs.job_record import ExceptionHistory
from checkpointing.model.messages import ExceptionInfo


def test_a_history_is_truncated_as_soon_as_one_exception_was_dropped() -> None:
    history = ExceptionHistory(size=2)
    first, second, third = (ExceptionInfo("ValueError", f"{number}", "", number) for number in range(3))

    history.record(first, 1)
    history.record(second, 2)
    assert not history.truncated
    history.record(third, None)

    assert history.truncated
    assert [(entry.info, entry.attempt) for entry in history.entries] == [(third, None), (second, 2)]
