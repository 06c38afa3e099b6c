"""A rule kind: the newest snapshot of a job is nearly as old as the oldest input that its source still keeps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from django.utils.translation import gettext_noop as _

from monitoring.alerts.kinds.ages import Age
from monitoring.alerts.kinds.base import Day, Finding, Number, Source, Terms, Unit
from monitoring.alerts.rule_facts import Facts
from monitoring.reasons.reason import Reason, ReasonCode

_DAY = 86_400


class DataLossRiskReason(ReasonCode):
    RULE = (
        "alerts.data-loss-risk-rule",
        _(
            "Opens {lead:length} before the newest checkpoint or savepoint of a job, running or dead, is "
            "{keeps:length} old. The source of the job retains data for that long. After that, the input "
            "since the snapshot can no longer be read again."
        ),
    )
    NO_STATE = "alerts.no-state", _("{subject} has no checkpoint or savepoint.")
    FOUND = (
        "alerts.data-loss-risk",
        _(
            "The newest snapshot of {subject} is from {at:minute}; its source retains data for "
            "{keeps:length}. After that, the input since the snapshot can no longer be read again."
        ),
    )


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
        _("How long the topic or table retains its data, such as 7 d."),
    )
    parameters: ClassVar[Mapping[str, Number | Day]] = {
        "lead_s": Number(
            _("Warn in advance"),
            Unit.SECONDS,
            _DAY,
            0,
            3650 * _DAY,
            _("How long before the data is lost the incident opens. Allow enough time for a repair."),
        )
    }
    check_every_s = 300

    def explain(self, terms: Terms) -> Reason:
        return DataLossRiskReason.RULE(lead=terms.parameters["lead_s"], keeps=terms.threshold or 0)

    def limit(self, facts: Facts, terms: Terms, at: datetime) -> float | None:
        return _oldest_s(terms)

    def limit_without_run(self, terms: Terms) -> float | None:
        return _oldest_s(terms)

    def begin(self, facts: Facts, terms: Terms, at: datetime) -> datetime | None:
        """Return None for a job that ended without failing or never had a snapshot: it has no state to lose."""
        run, last = facts.run(at), facts.last(at)
        if run is None or last is None or (not run.is_live_at(at) and not run.failed):
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
            return Finding(DataLossRiskReason.NO_STATE(subject=subject), evidence)
        return Finding(DataLossRiskReason.FOUND(subject=subject, at=last.at, keeps=keeps), evidence)


def _oldest_s(terms: Terms) -> float:
    return max(0.0, float((terms.threshold or 0) - int(terms.parameters["lead_s"])))


KINDS = (DataLossRisk(),)
