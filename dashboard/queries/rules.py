"""Read rules for the list of rules and for the pages of one rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, F, Q, QuerySet
from django.utils.translation import gettext as _

from dashboard.language import rendered
from monitoring.alerts.kinds import GROUPS, kinds
from monitoring.alerts.kinds.base import Kind, Subject
from monitoring.alerts.scope import terms_of
from monitoring.models import AlertRule, RuleScope
from monitoring.reasons.reason import Reason

_UNRESOLVED = Count("incidents", filter=~Q(incidents__state="resolved"))


@dataclass(frozen=True)
class RuleRow:
    rule: AlertRule
    kind: Kind | None  # None if only a newer version of Waymark knows the type
    unresolved: int

    @property
    def title(self) -> str:
        return _(self.kind.title) if self.kind else self.rule.kind

    @property
    def explanation(self) -> Reason | None:
        return self.kind.explain(terms_of(self.rule)) if self.kind else None

    @property
    def sentence(self) -> str:
        return rendered(self.explanation or _("This version of Waymark does not know the rule type."))

    @property
    def watches(self) -> str:
        """Return a text for the jobs or clusters that the rule watches."""
        if self.kind and self.kind.subject is not Subject.JOB:
            return _("all clusters") if self.kind.subject is Subject.CLUSTER else "Waymark"
        match self.rule.scope:
            case RuleScope.JOB:
                return str(self.rule.job)
            case RuleScope.SELECTOR:
                return self.rule.selector
            case RuleScope.EVERYTHING:
                return _("all jobs")


def listed_rules(text: str = "") -> QuerySet[AlertRule]:
    """Return the rules of many jobs first, then the rules of single jobs by the job's name."""
    rules = AlertRule.objects.select_related("job__cluster").prefetch_related("channels")
    rules = rules.annotate(unresolved=_UNRESOLVED)
    if text:
        rules = rules.filter(Q(name__icontains=text) | Q(job__name__icontains=text) | Q(selector__icontains=text))
    return rules.order_by(F("job__name").asc(nulls_first=True), "kind", "name", "severity", "pk")


def rows_of(rules: Sequence[AlertRule]) -> list[RuleRow]:
    return [RuleRow(rule, kinds().get(rule.kind), getattr(rule, "unresolved", 0)) for rule in rules]


def kinds_by_group(of_jobs: bool) -> list[tuple[str, list[tuple[Kind, str]]]]:
    """Return the groups of rule types, each type with the sentence for its defaults.

    With `of_jobs`, return only the types that a single job can have.
    """
    found = [kind for kind in kinds().values() if not of_jobs or kind.subject is Subject.JOB]
    sentences = [(kind, rendered(kind.explain(kind.fill(None, None, {})))) for kind in found]
    groups = [(group, [each for each in sentences if each[0].group == group]) for group in GROUPS]
    return [(group, members) for group, members in groups if members]
