"""A Celery application with short times, so that tests see claims, leases and hold-downs end.

They last a tenth as long as usual. Each beat ignores the other beats and sends every tick twice.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from celery.beat import ScheduleEntry

from dashboard.stack.celery_app import app

__all__ = ["app"]

import django

django.setup()

from dashboard.beat import scheduler  # noqa: E402  (needs Django)
from monitoring import engine_calls  # noqa: E402
from monitoring.engine import evidence  # noqa: E402
from monitoring.engine.answers import cluster  # noqa: E402
from monitoring.polling import claim, plan  # noqa: E402
from monitoring.recovery import detection, moving  # noqa: E402
from monitoring.recovery.stages import await_running, start_job  # noqa: E402
from monitoring.savepoints import claims, cycle  # noqa: E402

_TENTH = 10
_SHORTENED = (
    (engine_calls, "CALL_LIMIT_S"),
    (evidence, "HOLD_DOWN"),
    (evidence, "EMPTY_HOLD_DOWN"),
    (claim, "LEASE"),
    (cluster, "DEFAULT_KEPT_S"),
    (plan, "ANSWERS_KEPT"),
    (plan, "KEPT_LONGER"),
    (detection, "FIRST_BACKOFF"),
    (moving, "CLAIM"),
    (start_job, "SEND_AGAIN_AFTER"),
    (await_running, "LINK_WITHIN"),
    (claims, "CLAIM"),
    (cycle, "CLAIM"),
)
for module, name in _SHORTENED:
    setattr(module, name, getattr(module, name) / _TENTH)
assert timedelta(seconds=9) == moving.CLAIM

# Each beat has a separate lease, so that no beat is on standby.
for name in ("LEASE_KEY", "SENT_KEY"):
    setattr(scheduler, name, f"{getattr(scheduler, name)}:{os.getpid()}")
app.conf.beat_schedule = {
    name: entry for name, entry in app.conf.beat_schedule.items() if name in ("poll", "savepoints", "recovery")
}


class Twice(scheduler.LeasedScheduler):
    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        super().apply_entry(entry, producer)
        super().apply_entry(entry, producer)
