"""Reasons why the automation of a job does not act, and errors in the form of a pause."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.reasons.reason import ReasonCode


class AutomationReason(ReasonCode):
    MANAGED_ELSEWHERE = "automation.managed-elsewhere", _("the job is managed elsewhere ({who})")
    PAUSED = "automation.paused", _("its automation is paused")
    PAUSED_UNTIL = "automation.paused-until", _("its automation is paused until {until:minute}")
    ALL_PAUSED = "automation.all-paused", _("all automation is paused by {who}: {reason}")
    ALL_PAUSED_UNTIL = (
        "automation.all-paused-until",
        _("all automation is paused until {until:minute} by {who}: {reason}"),
    )
    CLUSTER_PAUSED = "automation.cluster-paused", _("the automation of {cluster} is paused by {who}: {reason}")
    CLUSTER_PAUSED_UNTIL = (
        "automation.cluster-paused-until",
        _("the automation of {cluster} is paused until {until:minute} by {who}: {reason}"),
    )

    WHY_NEEDED = "automation.why-needed", _("Enter a reason, so that others know why it is paused.")
    WHY_TOO_LONG = "automation.why-too-long", _("Enter at most {most} characters; the text has {count}.")
    LATER_END_NEEDED = (
        "automation.later-end-needed",
        _("Enter a time in the future. Leave it empty to pause until a person ends the pause."),
    )
