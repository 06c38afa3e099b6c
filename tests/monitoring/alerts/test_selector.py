"""The language that selects jobs by label, and which rule applies to which job."""

from __future__ import annotations

import pytest

from monitoring.alerts.scope import WatchedJob, assign, watched_jobs
from monitoring.alerts.selector import BadSelector, parse
from monitoring.models import AlertRule

LABELS = {"team": "payments", "env": "prod", "job": "orders-enrich", "cluster": "eu", "empty": ""}


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", True),
        ("team=payments", True),
        ("team = payments , env != dev", True),
        ("team=payments,env=dev", False),
        ("env=dev|prod", True),
        ("env!=dev|prod", False),
        ("owner!=ada", True),
        ("team", True),
        ("owner", False),
        ("!owner", True),
        ("!team", False),
        ("job=orders-*", True),
        ("job=*-orders", False),
        ("job=orders-enric?", False),
        ("cluster=eu", True),
    ],
)
def test_all_terms_must_match(text: str, chosen: bool) -> None:
    assert parse(text).matches(LABELS) is chosen


@pytest.mark.parametrize(
    "text", ["team==payments", "team=", "=payments", "a=b=c", "team=payments,", "te am=x", "team=a||b", "!", "team>1"]
)
def test_an_invalid_selector_is_refused_with_the_allowed_form(text: str) -> None:
    with pytest.raises(BadSelector, match=r"is not a term|a term is empty"):
        parse(text)
    with pytest.raises(BadSelector, match="write terms like team=payments"):
        parse(text)


def test_the_narrowest_scope_decides_and_rules_of_one_scope_all_apply(rows) -> None:
    own, labelled, _ = (rows.job(name=name) for name in ("own", "labelled", "plain"))
    for job in (own, labelled):
        job.labels = {"team": "payments"}
        job.save()
    rules = {
        name: AlertRule.objects.create(name=name, **values)
        for name, values in {
            "everything": {},
            "everything, critical": {"severity": "critical"},
            "by label": {"selector": "team=payments", "enabled": False},
            "another kind": {"kind": "state_size"},
        }.items()
    }
    rules["own"] = AlertRule.objects.create(job=own)

    assigned = assign(AlertRule.objects.all(), watched_jobs())

    assert {name: sorted(job.name for job in assigned[rule.pk]) for name, rule in rules.items()} == {
        "own": ["own"],
        "by label": ["labelled"],
        "everything": ["plain"],
        "everything, critical": ["plain"],
        "another kind": ["labelled", "own", "plain"],
    }


def test_the_labels_of_a_job_override_those_of_its_cluster(rows) -> None:
    cluster = rows.cluster(labels={"env": "prod", "team": "platform"})
    job = rows.job(cluster, labels={"team": "payments"})
    (watched,) = watched_jobs([job.pk])
    assert {key: watched.labels[key] for key in ("env", "team", "cluster")} == {
        "env": "prod",
        "team": "payments",
        "cluster": cluster.name,
    }


def test_an_invalid_selector_matches_no_job_and_other_rules_apply():
    """The API refuses an invalid selector. One that was written into the database must not stop the evaluation."""
    unreadable, everything = (AlertRule(pk=pk, kind="k", selector=text) for pk, text in ((1, "team=="), (2, "")))
    jobs = [WatchedJob(7, "orders", 1, {"team": "payments"})]
    assert assign([unreadable, everything], jobs) == {1: [], 2: jobs}
