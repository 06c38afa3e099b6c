"""Find the runbooks of an incident: that of its rule, and those whose labels match its job."""

from __future__ import annotations

from collections.abc import Iterable

from monitoring.alerts.scope import labels_of
from monitoring.alerts.selector import selects
from monitoring.models import Incident, Runbook


def runbooks_of(incident: Incident, runbooks: Iterable[Runbook]) -> list[str]:
    """Return the texts for an incident, that of its rule first. `runbooks` has all that are stored."""
    own = [incident.rule.runbook] if incident.rule is not None and incident.rule.runbook else []
    if incident.job is None or incident.cluster is None:
        return own
    labels = labels_of(incident.job.name, incident.job.labels, incident.cluster)
    return list(dict.fromkeys([*own, *(each.text for each in runbooks if selects(each.selector, labels))]))
