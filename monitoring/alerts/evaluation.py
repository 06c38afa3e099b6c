"""Evaluates due rules on stored rows.

Rules of one batch are locked, counted, acted on and moved to their next check in one transaction, outbox included. A
worker that dies leaves the batch due, two workers never take the same rule (locked rows are skipped), and nothing here
waits for anything but the database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from monitoring.alerts.failed_counts import window_facts
from monitoring.alerts.failed_in_window import Condition, Met, NotMet, WindowFacts, decide
from monitoring.alerts.incidents import change_incident, open_incident, resolve_incident
from monitoring.models import AlertRule, Incident, IncidentKind, IncidentState, Job, RuleKind, Severity

BATCH = 500


def ensure_default_rule(job: Job) -> None:
    """The rule every job starts with; one that exists, changed or switched off, stays as it is."""
    AlertRule.objects.get_or_create(job=job, kind=RuleKind.FAILED_IN_WINDOW)


def evaluate_due(now: datetime) -> str:
    """Evaluate every rule whose check is due; says in a sentence what came of it."""
    _create_missing_rules()
    outcome: Counter[str] = Counter()
    outcome["resolved"] += _resolve_unwatched(now)
    while batch := _evaluate_batch(now):
        outcome += batch
    return _sentence(outcome)


def _create_missing_rules() -> None:
    jobs = Job.objects.exclude(rules__kind=RuleKind.FAILED_IN_WINDOW).values_list("id", flat=True)
    rules = [AlertRule(job_id=job, kind=RuleKind.FAILED_IN_WINDOW) for job in jobs]
    AlertRule.objects.bulk_create(rules, batch_size=BATCH, ignore_conflicts=True)


@transaction.atomic
def _resolve_unwatched(now: datetime) -> int:
    """An incident whose rule was switched off or removed would stay open for good: nobody evaluates it any more."""
    unwatched = (
        Incident.objects.filter(Q(rule=None) | Q(rule__enabled=False), kind=IncidentKind.FAILED_IN_WINDOW)
        .exclude(state=IncidentState.RESOLVED)
        .select_related("job")
    )
    return sum(
        resolve_incident(each, f"its rule was {'switched off' if each.rule_id else 'removed'}.", {}, now)
        for each in unwatched
    )


@transaction.atomic
def _evaluate_batch(now: datetime) -> Counter[str]:
    due = Q(next_check_at=None) | Q(next_check_at__lte=now)
    rules = list(
        AlertRule.objects.filter(due, enabled=True)
        .select_related("job__cluster")
        .order_by("id")
        .select_for_update(of=("self",), skip_locked=True)[:BATCH]
    )
    watched = [rule for rule in rules if rule.job.cluster.reachable]
    facts = window_facts([rule.pk for rule in watched], now)
    incidents = _unresolved(watched)
    outcome: Counter[str] = Counter(frozen=len(rules) - len(watched), evaluated=len(watched))
    for rule in watched:
        fact = facts.get(rule.pk, WindowFacts())
        outcome[_apply(rule, fact, incidents.get(rule.pk), now)] += 1
        rule.last_checked_at, rule.last_value = now, fact.count
    for rule in rules:
        rule.next_check_at = now + timedelta(seconds=rule.check_every_s)
    AlertRule.objects.bulk_update(rules, ["next_check_at", "last_checked_at", "last_value"], batch_size=BATCH)
    return +outcome


def _unresolved(rules: Iterable[AlertRule]) -> dict[int | None, Incident]:
    found = Incident.objects.filter(rule__in=list(rules)).exclude(state=IncidentState.RESOLVED).select_related("job")
    return {incident.rule_id: incident for incident in found}


def _apply(rule: AlertRule, facts: WindowFacts, incident: Incident | None, now: datetime) -> str:
    verdict = decide(Condition(rule.job.name, rule.threshold, timedelta(seconds=rule.window_s)), facts)
    match verdict, incident:
        case Met(sentence, evidence), None:
            severity = Severity(rule.severity)
            open_incident(rule.job, rule, IncidentKind.FAILED_IN_WINDOW, severity, sentence, evidence, now)
            return "opened"
        case Met(sentence, evidence), Incident() if sentence != incident.sentence:
            change_incident(incident, sentence, evidence, now)
            return "changed"
        case NotMet(sentence, evidence), Incident():
            resolve_incident(incident, sentence, evidence, now)
            return "resolved"
        case _:
            return "unchanged"


def _sentence(outcome: Counter[str]) -> str:
    changes = ", ".join(f"{outcome[kind]} {kind}" for kind in ("opened", "changed", "resolved") if outcome[kind])
    if not outcome["evaluated"] and not outcome["frozen"]:
        return f"No rule was due{f'; incidents: {changes}' if changes else ''}."
    frozen = f"; {outcome['frozen']} frozen, their cluster does not answer" if outcome["frozen"] else ""
    return f"{_count(outcome['evaluated'], 'rule')} evaluated{frozen}; incidents: {changes or 'no change'}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun if number == 1 else noun + 's'}"
