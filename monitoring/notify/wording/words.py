"""The words for events, severities and kinds in the active language.

They have the context "message" in the catalogues, because a message says what is wrong: a rule is called “Alignment
duration”, its message in Chinese “alignment takes too long”.
"""

from __future__ import annotations

from django.utils.translation import gettext, pgettext, pgettext_lazy

from monitoring.alerts.kinds import kinds

_EVENTS = {
    "opened": pgettext_lazy("message", "opened"),
    "resolved": pgettext_lazy("message", "resolved"),
    "repeat": pgettext_lazy("message", "still open"),
    "escalation": pgettext_lazy("message", "escalated"),
    "woken": pgettext_lazy("message", "snooze over"),
    "test": pgettext_lazy("message", "test"),
}
_SEVERITIES = {"warning": pgettext_lazy("message", "warning"), "critical": pgettext_lazy("message", "critical")}


def event_label(event: str) -> str:
    return str(_EVENTS.get(event, event))


def severity_label(severity: str) -> str:
    return str(_SEVERITIES.get(severity, severity))


def kind_label(kind: str) -> str:
    """Return the word for a kind. A language without one shows the title of the rule."""
    title = kinds()[kind].title if kind in kinds() else kind.replace("_", " ")
    word = pgettext("message", title)
    return word if word != title else gettext(title)
