"""The newest state is nearly as old as what the source still keeps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.ages import Age
from monitoring.alerts.kinds.base import Day, Finding, Number, Source, Terms, Unit
from monitoring.alerts.rule_facts import Facts
from monitoring.durations import in_words

_DAY = 86_400


class DataLossRisk(Age):
    name = "data_loss_risk"
    title = _("Data-loss risk")
    group = _("State")
    source = Source.COMPLETIONS
    threshold = Number(
        _("The source keeps"),
        Unit.SECONDS,
        7 * _DAY,
        60,
        3650 * _DAY,
        _("The retention of the topic or table, such as 7 d."),
    )
    parameters: ClassVar[Mapping[str, Number | Day]] = {
        "lead_s": Number(
            _("Tell people before"), Unit.SECONDS, _DAY, 0, 3650 * _DAY, _("The time that a repair needs.")
        )
    }
    check_every_s = 300

    def explain(self, terms: Terms) -> str:
        lead, keeps = terms.parameters["lead_s"], terms.threshold or 0
        return (
            f"Opens {in_words(lead)} before the newest checkpoint or savepoint of a job, running or dead, is as old as "
            f"the {in_words(keeps)} that its source keeps: what was read since could no longer be read again."
        )

    def limit(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        return _oldest_s(terms)

    def limit_without_run(self, terms: Terms) -> float | None:
        return _oldest_s(terms)

    def begin(self, facts: Facts, terms: Terms, at: datetime) -> datetime | None:
        """A job that ended as somebody wished, or that never had state, risks none."""
        run, last = facts.run(at), facts.last(at)
        if run is None or last is None or (not run.lives_at(at) and not run.failed):
            return None
        return last.at

    def describe(self, facts: Facts, terms: Terms, at: datetime, subject: str) -> Finding:
        last, keeps = facts.last(at), terms.threshold or 0
        evidence = {
            "source_keeps_s": keeps,
            "lead_s": terms.parameters["lead_s"],
            "last_checkpoint_id": last.number if last else None,
            "last_row": last.row if last else None,
            "last_completed_at": last.at.isoformat() if last else None,
        }
        if last is None:
            return Finding(f"{subject} has no state.", evidence)
        return Finding(
            f"The newest state of {subject} is of {last.at:%Y-%m-%d %H:%M} UTC; its source keeps {in_words(keeps)}. "
            "What comes after that can no longer be read again.",
            evidence,
        )


def _oldest_s(terms: Terms) -> float:
    return max(0.0, float((terms.threshold or 0) - int(terms.parameters["lead_s"])))


KIND = DataLossRisk()
