"""The rules that every installation starts with. People can change or disable them; deleted ones are created again."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_noop as _

from monitoring.models import AlertRule, Severity

DEFAULTS: dict[str, dict[str, Any]] = {
    "failed_in_window": {"name": _("Failed checkpoints"), "check_every_s": 300},
    "no_completed_checkpoint": {"name": _("No completed checkpoint"), "check_every_s": 60},
    "job_failed": {"name": _("Job failed"), "check_every_s": 15, "severity": Severity.CRITICAL},
    "run_missed": {"name": _("Scheduled run missing or late"), "check_every_s": 60},
    "restart_loop": {"name": _("Restart loop"), "check_every_s": 60},
    "cluster_unreachable": {"name": _("Cluster unreachable"), "check_every_s": 15, "severity": Severity.CRITICAL},
    "another_cluster": {"name": _("Another cluster answers"), "check_every_s": 15, "severity": Severity.CRITICAL},
    "deployment_problem": {"name": _("Deployment problem"), "check_every_s": 60},
    "waymark_blind": {"name": _("Waymark not polling"), "check_every_s": 30},
}
DEFAULT_NAMES = frozenset(values["name"] for values in DEFAULTS.values())
# Names that earlier versions stored, with the names that pages show instead.
FORMER_NAMES = {"Waymark itself blind": DEFAULTS["waymark_blind"]["name"]}


def ensure_default_rules() -> None:
    """Create each default rule whose kind has no rule for everything. Workers may call this at the same time."""
    there = set(AlertRule.objects.filter(job=None, selector="", kind__in=DEFAULTS).values_list("kind", flat=True))
    missing = [AlertRule(kind=kind, **values) for kind, values in DEFAULTS.items() if kind not in there]
    if missing:
        AlertRule.objects.bulk_create(missing, ignore_conflicts=True)


def is_default(rule: AlertRule) -> bool:
    """Return whether this is the last rule for everything of a default kind: if deleted, it is created again."""
    if rule.job_id is not None or rule.selector or rule.kind not in DEFAULTS:
        return False
    same = AlertRule.objects.filter(job=None, selector="", kind=rule.kind)
    return not same.exclude(pk=rule.pk).exists()
