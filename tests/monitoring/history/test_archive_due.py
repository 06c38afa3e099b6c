"""The process that archives returns its report, or the reason why it failed, as a code with arguments."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import pytest

from monitoring.history.archive.due import NotArchived, report_of
from monitoring.reasons.archive import ArchiveReason
from monitoring.reasons.work import WorkReason
from tests.monitoring.reported import done

REASON = ArchiveReason.UNUSABLE(problem="[Errno 28] No space left on device")
PRINTS_THE_REASON = f"import sys; print({json.dumps(REASON.as_json())!r}); sys.exit(1)"


def program(source: str) -> Sequence[str]:
    return [sys.executable, "-c", source]


def test_the_report_of_the_process_is_returned() -> None:
    report = done(WorkReason.ARCHIVED(what="checkpoints of 10 August to 16 August 2026"))
    assert report_of(program(f"print({json.dumps(report.as_json())!r})"), 60) == report


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (PRINTS_THE_REASON, REASON),
        (
            "raise MemoryError('heap is full')",
            ArchiveReason.PROCESS_ENDED(code=1, detail="MemoryError: heap is full"),
        ),
        (
            "import os; os.write(2, b'WARN a\\nERROR b\\n\\n'); os.kill(os.getpid(), 9)",
            ArchiveReason.PROCESS_ENDED(code=-9, detail="ERROR b"),
        ),
        (
            'import sys; print(\'{"code": "archive.of-a-newer-release", "args": {}}\'); sys.exit(3)',
            ArchiveReason.PROCESS_ENDED_SILENTLY(code=3),
        ),
    ],
)
def test_a_failed_process_has_its_own_reason_or_one_that_quotes_its_error_output(source: str, reason: object) -> None:
    with pytest.raises(NotArchived) as failed:
        report_of(program(source), 60)
    assert failed.value.reason == reason


def test_a_process_that_does_not_end_is_killed() -> None:
    with pytest.raises(NotArchived) as failed:
        report_of(program("import threading; threading.Event().wait()"), 0.5)
    assert failed.value.reason == ArchiveReason.PROCESS_HUNG(limit_s=0.5)
