"""Reasons for events of an incident. Reasons for findings are in the kinds of rules: `monitoring/alerts/kinds`."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

from monitoring.marking import plural as ngettext
from monitoring.reasons.reason import ReasonCode


class AlertReason(ReasonCode):
    FLAPPING = "alerts.flapping", _("{subject} is flapping: opened {opens} times within {window:length}. {finding}")
    FLAPPING_CALM = (
        "alerts.flapping-calm",
        _("{subject} is flapping: opened {opens} times within {window:length}. No problem since {since:minute}."),
    )

    ACKNOWLEDGED = "alerts.acknowledged", _("Acknowledged by {by}.")
    ACKNOWLEDGED_NOTE = "alerts.acknowledged-note", _("Acknowledged by {by}: {note}")
    SNOOZED = "alerts.snoozed", _("Snoozed for {length:length} by {by}.")
    SNOOZED_NOTE = "alerts.snoozed-note", _("Snoozed for {length:length} by {by}: {note}")
    WOKEN = "alerts.snooze-over", _("The snooze is over: {finding}")
    HIDDEN = "alerts.hidden", _("Hidden by incident {incident}: {finding}")
    RELEASED = "alerts.released", _("Incident {incident}, which hid this one, is resolved.")

    RESOLVED = "alerts.resolved", _("Resolved after {lasted:length}: {why}")
    RESOLVED_BY = "alerts.resolved-by", _("Resolved after {lasted:length} by {by}: {why}")
    CLOSED_BY_HAND = "alerts.closed-by-hand", _("Resolved after {lasted:length} by {by}: closed manually.")
    CLUSTER_REMOVED = "alerts.cluster-removed", _("Resolved after {lasted:length}: its cluster was removed.")
    RULE_OFF = "alerts.rule-switched-off", _("Resolved after {lasted:length}: its rule was switched off.")
    RULE_REMOVED = "alerts.rule-removed", _("Resolved after {lasted:length}: its rule was removed.")
    RULE_ELSEWHERE = "alerts.rule-elsewhere", _("Resolved after {lasted:length}: its rule no longer applies here.")

    NOTE = "alerts.note", _("{by}: {note}")
    REOPENED = "alerts.reopened", _("Reopened by {by}.")
    REOPENED_NOTE = "alerts.reopened-note", _("Reopened by {by}: {note}")

    HID_SOME = (
        "alerts.hid-incidents",
        ngettext(
            "{end} It hid {hid} of its jobs' incidents; {left} of them is open.",
            "{end} It hid {hid} of its jobs' incidents; {left} of them are open.",
            "left",
        ),
        "alerts.hid-incidents-one-open",
    )

    ALREADY_OPEN = "alerts.already-open", _("This incident is open already.")
    ALREADY_ACKNOWLEDGED = "alerts.already-acknowledged", _("This incident is acknowledged already.")
    ALREADY_SNOOZED = "alerts.already-snoozed", _("This incident is snoozed already.")
    ALREADY_RESOLVED = "alerts.already-resolved", _("This incident is resolved already.")
    REOPENED_MEANWHILE = (
        "alerts.reopened-meanwhile",
        _("Incident {incident} of the same rule is unresolved. Work on that incident."),
    )
    NO_RULE_TO_REOPEN = (
        "alerts.unwatched-incident",
        _("The rule of this incident is disabled or deleted, so the incident cannot be reopened."),
    )
    NO_CLUSTER_TO_REOPEN = (
        "alerts.no-cluster-to-reopen",
        _("The cluster of this incident was removed, so the incident cannot be reopened."),
    )
    MAINTENANCE = "alerts.maintenance", _("maintenance of {scope}")
    OF_JOB = "alerts.of-job", _("job {job}")
    OF_CLUSTER = "alerts.of-cluster", _("cluster {cluster}")
    OF_JOBS_WITH = "alerts.of-jobs-with", _("jobs with {labels}")
    WINDOW_IS_OVER = "alerts.window-is-over", _("The {window} is over already.")

    TEST = "alerts.test", _("This is a test of the channel {channel}: nothing happened.")
