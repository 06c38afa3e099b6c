"""The sentences of the rule for failed jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from monitoring.alerts.kinds.base import Terms
from monitoring.alerts.kinds.job_failed import JobFailed, JobFailedReason
from monitoring.alerts.rule_facts import Facts, RunFact
from monitoring.reasons.reason import from_json, render

BEGIN = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
NOW = BEGIN + timedelta(hours=1)
FAILED = RunFact(1, BEGIN, BEGIN + timedelta(minutes=5), failed=True)


@pytest.mark.parametrize(
    ("runs", "code", "chinese"),
    [
        (
            [FAILED, RunFact(2, BEGIN + timedelta(minutes=9), None, failed=False)],
            JobFailedReason.RUNNING,
            "flights 已恢复运行。",
        ),
        (
            [FAILED, RunFact(2, BEGIN + timedelta(minutes=9), NOW - timedelta(minutes=1), failed=False)],
            JobFailedReason.STOPPED,
            "flights 已停止或已完成。",
        ),
        ([], JobFailedReason.STOPPED, "flights 已停止或已完成。"),
    ],
)
def test_the_end_states_whether_the_job_runs_again(runs: list[RunFact], code: JobFailedReason, chinese: str) -> None:
    sentence = JobFailed().describe(Facts(runs=runs), Terms(None, None, {}), NOW, "flights").reason
    assert sentence == code(subject="flights")
    assert render(sentence, "zh-hans") == chinese


def test_a_row_of_an_earlier_version_keeps_its_sentence() -> None:
    stored = from_json({"code": "alerts.job-not-dead", "args": {"subject": "flights"}})
    assert stored is not None
    assert str(stored) == "flights is not in a failed state."
    assert render(stored, "zh-hans") == "flights 已不处于失败状态。"
