"""Restarts within a window: the engine's own, and new runs."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.base import Finding, Number, Source, Terms, Unit, times
from monitoring.alerts.kinds.counting import CountInWindow, window
from monitoring.alerts.rule_facts import Event, Facts
from monitoring.reasons.reason import Reason, ReasonCode

NEW_RUN = 2  # the value of a restart as a new run; one by the engine has 1


class RestartLoopReason(ReasonCode):
    RULE = (
        "alerts.restart-loop-rule",
        _("Opens when a job restarted {times} within {window:length}, by itself or as a new run."),
    )
    FOUND = "alerts.restart-loop", _("{subject} restarted {times} within {window:length} (threshold {threshold}).")
    FOUND_LAST = (
        "alerts.restart-loop-last",
        _("{subject} restarted {times} within {window:length} (threshold {threshold}): last, {last}."),
    )
    BY_ENGINE = "alerts.restart-by-engine", _("by the engine")
    NEW_RUN = "alerts.restart-as-run", _("as run {run}")


class RestartLoop(CountInWindow):
    name = "restart_loop"
    title = _("Restart loop")
    group = _("Job")
    source = Source.RESTARTS
    threshold = Number(_("Threshold"), Unit.COUNT, 5, 2, 10_000, _("Restarts that open an incident."))
    window = window(1800)

    def explain(self, terms: Terms) -> Reason:
        return RestartLoopReason.RULE(times=times(terms.threshold or 0), window=terms.window)

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        counted = self.counted(facts, terms, at)
        said = {
            "subject": subject,
            "times": times(len(counted)),
            "window": terms.window,
            "threshold": terms.threshold,
        }
        restarts = [event.at.isoformat() for event in reversed(counted[-20:])]
        return Finding(
            RestartLoopReason.FOUND_LAST(**said, last=_how(counted[-1]))
            if counted
            else RestartLoopReason.FOUND(**said),
            {"count": len(counted), "threshold": terms.threshold, "window_s": terms.window_s, "restarts": restarts},
        )


def _how(restart: Event) -> Reason | str:
    if restart.value == NEW_RUN:
        return RestartLoopReason.NEW_RUN(run=restart.number)
    return restart.text.rstrip(".") or RestartLoopReason.BY_ENGINE()


KIND = RestartLoop()
