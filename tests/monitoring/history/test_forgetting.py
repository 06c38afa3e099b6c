"""Minutes go after two days; hours and days stay."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from monitoring.history.forgetting import forget
from monitoring.models import Rollup


def test_minutes_are_forgotten_after_two_days(rows, pipeline):
    rows.now = timezone.now().replace(minute=30)
    run = rows.run(rows.job())
    rows.checkpoint(run, 1)
    rows.checkpoint(run, 2, triggered_at=rows.ago(47 * 3600))
    pipeline.run()
    assert Rollup.objects.filter(seconds=60).count() == 2
    assert forget(rows.now) == ""
    assert forget(rows.now + timedelta(hours=2)) == "Roll-ups of minutes forgotten: 1."
    assert {each.seconds for each in Rollup.objects.all()} == {60, 3600, 86_400}
    assert Rollup.objects.count() == 1 + 4


def test_a_history_that_is_read_late_has_no_minutes_of_then(rows, pipeline):
    rows.now = timezone.now()
    rows.checkpoint(rows.run(rows.job()), 1, triggered_at=rows.ago(60 * 3600))
    pipeline.run()
    assert not Rollup.objects.filter(seconds=60).exists()
