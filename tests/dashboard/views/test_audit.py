"""The audit page: its filters, its CSV file, and formulas that a spreadsheet must not execute."""

from __future__ import annotations

import csv
from datetime import datetime, timedelta
from typing import Any

from django.test import Client
from django.urls import reverse

from monitoring import audit
from monitoring.models import AuditEntry


def text_of(response: Any) -> str:
    return b"".join(response.streaming_content).decode() if response.streaming else response.content.decode()


def test_audit_page_is_filtered_by_actor_target_and_time(viewer: Client, now: datetime) -> None:
    audit.record("ida", "rule.change", "rule slow", "first")
    old = audit.record("ida", "savepoint.request", "job b", "second")
    AuditEntry.objects.filter(pk=old.pk).update(at=now - timedelta(days=3))
    page = viewer.get(reverse("audit"), {"q": "ida", "action": "rule."}).content.decode()
    assert ("first" in page, "second" in page) == (True, False)
    day = f"{now - timedelta(days=3):%Y-%m-%d}"
    page = viewer.get(reverse("audit"), {"since": day, "until": day}).content.decode()
    assert ("first" in page, "second" in page) == (False, True)


def test_invalid_day_is_reported_at_its_field(viewer: Client) -> None:
    answer = viewer.get(reverse("audit"), {"since": "yesterday"})
    assert answer.status_code == 422
    assert "Enter a valid date" in answer.content.decode()
    assert 'value="yesterday"' in answer.content.decode()


def test_the_csv_file_has_the_filtered_entries_and_no_formulas(viewer: Client) -> None:
    audit.record("ida", "rule.change", "rule a", "=HYPERLINK(1)", before={"threshold": "3"})
    audit.record("bob", "rule.change", "rule b")
    rows = list(csv.DictReader(text_of(viewer.get(reverse("audit-csv"), {"q": "ida"})).splitlines()))
    assert [row["actor"] for row in rows] == ["ida"]
    assert rows[0]["reason"] == "'=HYPERLINK(1)"
    assert rows[0]["details"] == '{"before": {"threshold": "3"}}'
