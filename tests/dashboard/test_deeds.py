from __future__ import annotations

from typing import Any

import pytest

from dashboard.deeds import deed_of, reason_of, subject_of
from monitoring.models import AuditEntry


def entry(action: str, **details: Any) -> AuditEntry:
    return AuditEntry(actor="olga", action=action, target="job flights", details=details)


@pytest.mark.parametrize(
    ("action", "details", "words"),
    [
        ("savepoint.request", {"savepoint": 4}, "asked for a savepoint"),
        ("savepoint.schedule", {"interval_s": 300}, "set savepoints every 5 min"),
        ("savepoint.schedule", {"interval_s": None}, "set savepoints off"),
        ("rule.change", {"threshold": "5", "window_s": "900"}, "changed the rule: threshold 5, window 15 min"),
        (
            "job.automation",
            {"was": {"auto_restart": True}, "now": {"auto_restart": False, "automation_note": ""}},
            "changed what Waymark does: automatic restart off, note none",
        ),
        ("job.automation", {}, "changed what Waymark does: nothing"),
        ("something.new", {}, "something.new"),
    ],
)
def test_an_audit_entry_reads_as_a_sentence(action: str, details: dict[str, Any], words: str) -> None:
    assert deed_of(entry(action, **details)) == words


def test_a_job_is_named_without_the_word_job() -> None:
    assert subject_of(entry("rule.change")) == "flights"


def test_the_schedule_is_said_as_a_reason() -> None:
    assert reason_of(AuditEntry(reason="schedule")) == "scheduled"
