"""Apply a plan in one transaction."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from dashboard.as_code.plan import Change, Plan, plan
from monitoring import audit
from monitoring.alerts.defaults import is_default
from monitoring.models import AlertRule, Channel


class NotApplied(Exception):
    """The text has errors, so nothing was changed."""

    def __init__(self, made: Plan) -> None:
        self.plan = made
        super().__init__("\n".join(str(problem) for problem in made.problems))


@transaction.atomic
def apply(text: str, by: str, now: datetime, *, prune: bool = False, may_allow_private: bool = True) -> list[Change]:
    """Plan the import again and apply it in the same transaction.

    With `prune`, rules that are not in the file are deleted. Channels are never deleted, because they may be in use
    elsewhere, nor are objectives, because files of earlier versions have none.

    Raises:
        NotApplied: The text has errors.
    """
    made = plan(text, may_allow_private=may_allow_private)
    if made.problems:
        raise NotApplied(made)
    _save_channels(made)
    _save_rules(made, now)
    for objective in made.objectives:
        objective.save()
    changes = [*made.changes, *(_remove(removable(made)) if prune else [])]
    if changes:
        summary = "; ".join(f"{change.verb} {change.what}" for change in changes)
        audit.record(by, "rule.import", "rules and channels", changes=summary[:5000])
    return changes


def removable(made: Plan) -> list[AlertRule]:
    return [each for each in made.absent if isinstance(each, AlertRule) and not is_default(each)]


def _save_channels(made: Plan) -> None:
    """Save all channels, and then their escalations, because a channel may escalate to a new channel of the file."""
    for _, form in made.channels:
        form.instance.escalate_to = None
        form.instance.save()
    named = {channel.name: channel for channel in Channel.objects.all()}
    for values, form in made.channels:
        if values.get("escalate_to"):
            form.instance.escalate_to = named[str(values["escalate_to"])]
            form.instance.save(update_fields=["escalate_to"])


def _save_rules(made: Plan, now: datetime) -> None:
    channels = {channel.name: channel for channel in Channel.objects.all()}
    for values, rule in made.rules:
        rule.evaluated_until, rule.next_check_at = {}, now
        rule.save()
        rule.channels.set([channels[name] for name in values["channels"]])


def _remove(rules: list[AlertRule]) -> list[Change]:
    changes = [Change(f"rule {rule}", "remove") for rule in rules]
    AlertRule.objects.filter(pk__in=[rule.pk for rule in rules]).delete()
    return changes
