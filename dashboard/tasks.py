"""Celery tasks that need the forms of the pages. The others are in monitoring/tasks.py."""

from __future__ import annotations

from celery import shared_task

from monitoring import clock
from monitoring.reasons.report import CycleReport
from monitoring.selfwatch.ticks import recorded


@shared_task
@recorded
def apply_inventory() -> CycleReport | None:
    from dashboard.as_code.inventory import apply_inventory

    return apply_inventory(clock.now())
