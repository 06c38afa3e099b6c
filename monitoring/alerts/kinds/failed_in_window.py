"""Failed checkpoints within a window.

Counted are distinct failed ids, by their own time of failure, over all runs of the job: what one poll or ten saw makes
no difference, nor does a job manager whose counters start again at zero.
"""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext_noop as _

from monitoring.alerts.failure_reason import failure_in_words
from monitoring.alerts.kinds.base import Finding, Number, Source, Terms, Unit, plural
from monitoring.alerts.kinds.counting import CountInWindow, evidence, window
from monitoring.alerts.rule_facts import Facts
from monitoring.durations import in_words


class FailedInWindow(CountInWindow):
    name = "failed_in_window"
    title = _("Failed checkpoints within a window")
    group = _("Checkpoints")
    source = Source.FAILURES
    threshold = Number(_("Threshold"), Unit.COUNT, 3, 1, 100_000, _("Failed checkpoints that open an incident."))
    window = window(900)
    check_every_s = 300

    def explain(self, terms: Terms) -> str:
        failed = plural(terms.threshold or 0, "checkpoint")
        return f"Opens when {failed} failed within {in_words(terms.window)}, each id counted once, over all runs."

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        counted = self.counted(facts, terms, at)
        sentence = (
            f"{plural(len(counted), 'checkpoint')} of {subject} failed "
            f"within {in_words(terms.window)} (threshold {terms.threshold})"
        )
        last = counted[-1] if counted and len(counted) >= (terms.threshold or 0) else None
        tail = f": the last, {last.number}, {failure_in_words(last.text)}" if last else ""
        return Finding(f"{sentence}{tail}.", evidence(counted, terms))


KIND = FailedInWindow()
