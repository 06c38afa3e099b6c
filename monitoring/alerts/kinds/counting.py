"""Kinds that count events within (at - window, at]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.alerts.failure_reason import checkpoint_failure
from monitoring.alerts.kinds.base import Finding, Kind, Number, Source, Terms, Unit, checkpoints, times
from monitoring.alerts.rule_facts import Event, Facts
from monitoring.reasons.reason import Reason, ReasonCode

EVIDENCE_EVENTS = 20
NEW_RUN = 2  # the value of an event for a new run; an event for a restart by the engine has 1


def window(default: int) -> Number:
    return Number(
        _("Window"),
        Unit.SECONDS,
        default,
        60,
        30 * 86_400,
        _("Only events within this time are counted, such as 15 min."),
    )


class CountInWindow(Kind):
    counts = True

    def moments(self, facts: Facts, terms: Terms, since: datetime, until: datetime) -> Iterable[datetime]:
        """Yield the time of each event, and the time at which it leaves the window."""
        for event in facts.within(since - terms.window, until):
            yield event.at
            yield event.at + terms.window

    def value(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        return len(self.counted(facts, terms, at))

    def counted(self, facts: Facts, terms: Terms, at: datetime) -> Sequence[Event]:
        return facts.within(at - terms.window, at)


class FailedInWindowReason(ReasonCode):
    RULE = (
        "alerts.failed-in-window-rule",
        _("Opens when {checkpoints} failed within {window:length}, across all runs. Each checkpoint id counts once."),
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
    """Counts failed checkpoints by their time of failure over all runs of the job, each ID once.

    The number of polls makes no difference, nor does a job manager whose counters start again at zero.
    """

    name = "failed_in_window"
    title = _("Failed checkpoints within a window")
    group = _("Checkpoints")
    source = Source.FAILURES
    threshold = Number(
        _("Threshold"),
        Unit.COUNT,
        3,
        1,
        100_000,
        _(
            "Failed checkpoints that open an incident. "
            "Checkpoints that a requested stop or restart aborted do not count."
        ),
    )
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
        reached = bool(counted) and len(counted) >= (terms.threshold or 0)
        if reached:
            said |= {"checkpoint": counted[-1].number, "failure": checkpoint_failure(counted[-1].text)}
        return Finding(
            FailedInWindowReason.FOUND(**said) if reached else FailedInWindowReason.BELOW(**said),
            {
                "count": len(counted),
                "threshold": terms.threshold,
                "window_s": terms.window_s,
                "checkpoint_ids": [event.number for event in reversed(counted[-EVIDENCE_EVENTS:])],
                "last_row": counted[-1].row if counted else None,
            },
        )


class RestartLoopReason(ReasonCode):
    RULE = (
        "alerts.restart-loop-rule",
        _("Opens when a job restarted {times} within {window:length}, either by the engine or as a new run."),
    )
    FOUND = "alerts.restart-loop", _("{subject} restarted {times} within {window:length} (threshold {threshold}).")
    FOUND_LAST = (
        "alerts.restart-loop-last",
        _("{subject} restarted {times} within {window:length} (threshold {threshold}): last, {last}."),
    )
    BY_ENGINE = "alerts.restart-by-engine", _("by the engine")
    NEW_RUN = "alerts.restart-as-run", _("as run {run}")


class RestartLoop(CountInWindow):
    """Counts restarts: those within a run by the engine, and new runs."""

    name = "restart_loop"
    title = _("Restart loop")
    group = _("Job")
    source = Source.RESTARTS
    threshold = Number(
        _("Threshold"),
        Unit.COUNT,
        5,
        2,
        10_000,
        _("Restarts that open an incident. Restarts that a person requests do not count."),
    )
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
        restarts = [event.at.isoformat() for event in reversed(counted[-EVIDENCE_EVENTS:])]
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


KINDS = (FailedInWindow(), RestartLoop())
