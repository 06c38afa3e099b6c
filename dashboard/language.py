"""What the engine room says in English, in the language of the page: from the same numbers, never from the sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db.models import Prefetch, prefetch_related_objects
from django.utils.translation import gettext as _

from dashboard.phrases import told
from dashboard.units import is_chinese
from monitoring.alerts.kinds.base import Kind, Terms
from monitoring.models import Incident, IncidentEvent, IncidentEventKind
from monitoring.notify.wording import chinese, chinese_rules
from monitoring.savepoints.timetable import Cron, Timetable

_FINDINGS = (IncidentEventKind.OPENED, IncidentEventKind.CHANGED)


def explained(kind: Kind, terms: Terms) -> str:
    """A rule in one sentence."""
    return (is_chinese() and chinese_rules.explanation_of(kind.name, terms)) or kind.explain(terms)


def incident_sentence(incident: Incident) -> str:
    """What the incident says now. In Chinese from the evidence of its newest finding: one query, where `findings` were
    not read with it."""
    if not is_chinese():
        return incident.sentence
    newest = next(iter(_findings(incident)), None)
    said = chinese.sentence_of(incident.kind, incident.subject, newest.evidence) if newest else ""
    return said or incident.sentence


def with_findings(incidents: Sequence[Incident]) -> None:
    """Read what each says now in one query, for pages in other languages: `findings`, the newest first."""
    newest = IncidentEvent.objects.filter(kind__in=_FINDINGS).order_by("-at", "-id")
    prefetch_related_objects(incidents, Prefetch("events", newest, to_attr="findings"))


def event_sentence(event: IncidentEvent, incident: Incident) -> str:
    """One step of an incident."""
    if not is_chinese():
        return event.text
    if event.kind == IncidentEventKind.RESOLVED:
        lasted = (event.at - incident.opened_at).total_seconds()
        return chinese.sentence_of(incident.kind, incident.subject, event.evidence, lasted) or told(event.text)
    if event.kind in _FINDINGS:
        return chinese.sentence_of(incident.kind, incident.subject, event.evidence) or event.text
    return _deed(event, incident)


def finding_sentence(kind: str, subject: str, evidence: Mapping[str, object], english: str) -> str:
    """What a rule would have said, in a backtest."""
    return (chinese.sentence_of(kind, subject, evidence) if is_chinese() else "") or english


def schedule_text(timetable: Timetable | None) -> str:
    """`every 1 h`, `at 03:00 every day (Europe/Berlin)`; cron's own words are English only."""
    if is_chinese() and isinstance(timetable, Cron):
        return f"{timetable.expression}（{timetable.zone}）"
    return told(str(timetable or "no schedule"))


def _deed(event: IncidentEvent, incident: Incident) -> str:
    """`Acknowledged by olga: on it`: its beginning is ours, the note a person's."""
    said, colon, note = event.text.partition(": ")
    match event.kind:
        case IncidentEventKind.ACKNOWLEDGED:
            by = said.removeprefix("Acknowledged by ").rstrip(".")
            return _("Acknowledged by %(by)s") % {"by": by} + (f": {note}" if colon else "")
        case IncidentEventKind.SNOOZED:
            length, _by, by = said.removeprefix("Snoozed for ").rstrip(".").rpartition(" by ")
            snoozed = _("Snoozed for %(length)s by %(by)s") % {"length": told(length), "by": by}
            return snoozed + (f": {note}" if colon else "")
        case IncidentEventKind.INHIBITED if incident.inhibited_by and colon:
            return f"{told(said)}：{incident_sentence(incident.inhibited_by)}"
        case IncidentEventKind.WOKEN:
            return _("The snooze is over: %(sentence)s") % {"sentence": incident_sentence(incident)}
        case _:
            return told(event.text)


def _findings(incident: Incident) -> list[IncidentEvent]:
    read: list[IncidentEvent] | None = getattr(incident, "findings", None)
    if read is not None:
        return read[:1]
    return list(incident.events.filter(kind__in=_FINDINGS).order_by("-at", "-id")[:1])
