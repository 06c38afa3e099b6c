"""Which runbooks an incident has."""

from __future__ import annotations

import pytest

from monitoring.alerts.runbooks import runbooks_of
from monitoring.models import AlertRule, Cluster, Incident, Job, Runbook

EU = Cluster(pk=1, name="eu", engine="flink", labels={"env": "prod"})
ORDERS = Job(pk=1, name="orders", cluster=EU, labels={"team": "payments"})
RULE = AlertRule(pk=1, runbook="https://wiki.example.org/rule")
RUNBOOKS = [
    Runbook(selector="env=prod", text="Call ada."),
    Runbook(selector="not a selector", text="Never."),
    Runbook(selector="team=orders", text="Call bob."),
    Runbook(selector="team=payments,job=ord*", text="Call eve."),
    Runbook(selector="job=orders", text="Call ada."),
]


@pytest.mark.parametrize(
    ("incident", "texts"),
    [
        (Incident(rule=RULE, job=ORDERS, cluster=EU), ["https://wiki.example.org/rule", "Call ada.", "Call eve."]),
        (Incident(job=ORDERS, cluster=EU), ["Call ada.", "Call eve."]),
        (Incident(rule=AlertRule(pk=2), job=Job(pk=2, name="x", cluster=EU), cluster=EU), ["Call ada."]),
        (Incident(rule=RULE, cluster=EU), ["https://wiki.example.org/rule"]),
        (Incident(), []),
    ],
    ids=["rule and labels", "labels", "no runbook of the rule", "cluster", "Waymark"],
)
def test_the_runbook_of_the_rule_is_first_and_then_those_of_the_labels(incident: Incident, texts: list[str]) -> None:
    assert runbooks_of(incident, RUNBOOKS) == texts
