"""The numbers behind "failed checkpoints within a window", for any count of rules in two queries."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, DateTimeField, DurationField, ExpressionWrapper, F, Q, Value
from django.db.models.functions import Coalesce, Greatest

from monitoring.alerts.failed_in_window import EVIDENCE_IDS, FailedCheckpoint, WindowFacts
from monitoring.models import Checkpoint, CheckpointStatus


def window_facts(rule_ids: Collection[int], now: datetime) -> dict[int, WindowFacts]:
    """Per rule what failed in (now - window, now] and after its `counts_since`; rules with nothing are left out."""
    rule = "run__job__rules"
    window = ExpressionWrapper(F(f"{rule}__window_s") * Value(timedelta(seconds=1)), output_field=DurationField())
    window_start = ExpressionWrapper(Value(now) - window, output_field=DateTimeField())
    counted_from = Greatest(window_start, Coalesce(F(f"{rule}__counts_since"), window_start))
    newest_first = ("-failed_at", "-checkpoint_id")
    found = list(
        Checkpoint.objects.filter(
            Q(failed_at__gt=counted_from),
            run__job__rules__in=rule_ids,
            status=CheckpointStatus.FAILED,
            failed_at__lte=now,
        )
        .order_by()
        .values(rule_id=F(f"{rule}__id"))
        .annotate(
            count=Count("id"),
            rows=ArrayAgg("id", order_by=newest_first),
            ids=ArrayAgg("checkpoint_id", order_by=newest_first),
        )
    )
    messages = dict(
        Checkpoint.objects.filter(id__in=[each["rows"][0] for each in found]).values_list("id", "failure_message")
    )
    return {
        each["rule_id"]: WindowFacts(
            count=each["count"],
            ids=tuple(each["ids"][:EVIDENCE_IDS]),
            last=FailedCheckpoint(each["rows"][0], each["ids"][0], messages.get(each["rows"][0], "")),
        )
        for each in found
    }
