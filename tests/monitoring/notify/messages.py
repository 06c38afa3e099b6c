"""The message that tests of channels send."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from monitoring.notify.message import Item, Message

AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ITEM = Item(
    event="opened",
    severity="warning",
    kind="failed_in_window",
    job="flights",
    cluster="embedded",
    sentence="3 checkpoints failed.",
    at=AT,
    incident_id=7,
    incident_url="http://waymark.test/incidents/7/",
    job_url="http://waymark.test/jobs/3/",
    evidence={"count": 3},
)


def message(**values: object) -> Message:
    """Return a message about one incident with these values."""
    return Message("5" * 32, (replace(ITEM, **values),))
