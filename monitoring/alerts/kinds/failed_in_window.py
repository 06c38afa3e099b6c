"""Failed checkpoints within a window.

Counted are distinct failed ids, by their own time of failure, over all runs of the job: what one poll or ten saw makes
no difference, nor does a job manager whose counters start again at zero.
"""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.alerts.failure_reason import checkpoint_failure
from monitoring.alerts.kinds.base import Finding, Number, Source, Terms, Unit, checkpoints
from monitoring.alerts.kinds.counting import CountInWindow, evidence, window
from monitoring.alerts.rule_facts import Facts
from monitoring.reasons.reason import Reason, ReasonCode


class FailedInWindowReason(ReasonCode):
    RULE = (
        "alerts.failed-in-window-rule",
        _("Opens when {checkpoints} failed within {window:length}, each id counted once, over all runs."),
    )
    BELOW = (
        "alerts.failed-in-window-below",
        _("{checkpoints} of {subject} failed within {window:length} (threshold {threshold})."),
    )
    FOUND = (
        "alerts.failed-in-window",
        _(
            "{checkpoints} of {subject} failed within {window:length} (threshold {threshold}): the last, {checkpoint}, "
            "{failure}."
        ),
    )


class FailedInWindow(CountInWindow):
    name = "failed_in_window"
    title = _("Failed checkpoints within a window")
    group = _("Checkpoints")
    source = Source.FAILURES
    threshold = Number(_("Threshold"), Unit.COUNT, 3, 1, 100_000, _("Failed checkpoints that open an incident."))
    window = window(900)
    check_every_s = 300

    def explain(self, terms: Terms) -> Reason:
        return FailedInWindowReason.RULE(checkpoints=checkpoints(terms.threshold or 0), window=terms.window)

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        counted = self.counted(facts, terms, at)
        said = {
            "checkpoints": checkpoints(len(counted)),
            "subject": subject,
            "window": terms.window,
            "threshold": terms.threshold,
        }
        if counted and len(counted) >= (terms.threshold or 0):
            said |= {"checkpoint": counted[-1].number, "failure": checkpoint_failure(counted[-1].text)}
            return Finding(FailedInWindowReason.FOUND(**said), evidence(counted, terms))
        return Finding(FailedInWindowReason.BELOW(**said), evidence(counted, terms))


KIND = FailedInWindow()
