"""What pictures need to be true while they are taken."""

from __future__ import annotations

from django.utils import timezone

from monitoring.models import Cluster, Run


def poller_looked() -> None:
    """Just now, however slow the machine: else every page would rightly say that nobody watches any more."""
    now = timezone.now()
    Cluster.objects.filter(unreachable_since=None).update(last_answer_at=now)
    Run.objects.filter(job__cluster__unreachable_since=None).update(observed_at=now)
