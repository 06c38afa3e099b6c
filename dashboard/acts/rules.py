"""Save and remove alert rules."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.utils.translation import gettext as _

from dashboard.forms.rule import RuleForm
from monitoring import audit
from monitoring.alerts.defaults import is_default
from monitoring.models import AlertRule


class RuleRequired(Exception):
    """The rule cannot be removed. The message gives the reason."""


@transaction.atomic
def save_rule(form: RuleForm, by: str, now: datetime) -> AlertRule:
    """Save a rule from a valid form. The next tick evaluates it from scratch and does not wait for its interval."""
    was = _values(form.rule) if form.rule.pk else {}
    rule = form.apply()
    rule.evaluated_until, rule.next_check_at = {}, now
    rule.save()
    rule.channels.set(form.cleaned_data["channels"])
    changed = {name: str(form.cleaned_data[name]) for name in form.changed_data if name != "channels"}
    before = {name: was[name] for name in changed if name in was}
    details: dict[str, object] = {**changed, "before": before} if before else {**changed}
    audit.record(by, "rule.change", target_of(rule), "", **details)
    return rule


def require_deletable(rule: AlertRule) -> None:
    """Raise RuleRequired if the rule is the last one of its kind for all jobs."""
    if is_default(rule):
        raise RuleRequired(_("The last rule of this type for all jobs cannot be deleted. Disable it instead."))


@transaction.atomic
def remove_rule(rule: AlertRule, by: str) -> None:
    """Delete a rule.

    Raises:
        RuleRequired: it is the last rule of its kind for all jobs.
    """
    require_deletable(rule)
    audit.record(by, "rule.remove", target_of(rule), kind=rule.kind, before=_values(rule))
    rule.delete()


def target_of(rule: AlertRule) -> str:
    return f"job {rule.job.name}" if rule.job else f"rule {rule.name}"


def _values(rule: AlertRule) -> dict[str, str]:
    names = ("name", "selector", "threshold", "window_s", "open_hold_s", "close_hold_s", "flap_opens", "flap_window_s")
    own = {name: str(getattr(rule, name)) for name in (*names, "check_every_s", "severity", "enabled")}
    return own | {name: str(value) for name, value in rule.parameters.items()}
