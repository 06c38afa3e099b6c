"""The diagnosis is on the page and row of a checkpoint, on a job's overview and configuration, and on an incident."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import Checkpoint, Incident, Job, RunException
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
SAYS = "An external system did not respond in time or rejected a request"


@pytest.fixture
def job(now: datetime) -> Job:
    return make.make_job(make.make_cluster(now))


@pytest.fixture
def failed(job: Job, now: datetime) -> Checkpoint:
    run = make.make_run(job, now, checkpoint_config=make.config() | {"num_retained": 1})
    rows = make.make_checkpoints(run, now - timedelta(seconds=20), make.Shape(count=30, failed=frozenset({0})))
    make.make_operators(rows)
    Checkpoint.objects.filter(pk=rows[-1].pk).update(failure_message="Task local checkpoint failure.")
    RunException.objects.create(
        run=run,
        at=rows[-1].triggered_at + timedelta(seconds=2),
        root_cause="TimeoutError: <b>register</b> timed out",
        task="aggregate (2/4)",
        digest="1" * 32,
    )
    return rows[-1]


def test_page_and_row_of_a_checkpoint_show_the_diagnosis(operator: Client, failed: Checkpoint) -> None:
    address = reverse("checkpoint", args=[failed.pk])
    for page in (operator.get(address), operator.get(address, headers={"HX-Request": "true"})):
        html = page.content.decode()
        assert SAYS in html
        assert "&lt;b&gt;register&lt;/b&gt;" in html
        assert "<b>register" not in html


def test_the_overview_shows_the_diagnosis_and_the_advised_settings(
    operator: Client, job: Job, failed: Checkpoint
) -> None:
    page = operator.get(reverse("job", args=[job.pk])).content.decode()
    assert SAYS in page
    assert reverse("checkpoint", args=[failed.pk]) in page
    assert "Configuration advice:" in page
    assert "execution.checkpointing.num-retained: 3" in page


def test_the_configuration_shows_the_advice_at_its_key(operator: Client, job: Job, failed: Checkpoint) -> None:
    page = operator.get(reverse("job-configuration", args=[job.pk])).content.decode()
    assert "execution.checkpointing.num-retained: 3" in page
    assert '<dt>Retained checkpoints</dt><dd>1 <a class="tag advised" href="#finding-one_retained"' in page


def test_healthy_job_has_no_diagnosis(operator: Client, job: Job, now: datetime) -> None:
    run = make.make_run(job, now, checkpoint_config=make.config() | {"num_retained": 3})
    rows = make.make_checkpoints(run, now - timedelta(seconds=2), make.Shape(count=30))
    make.make_operators(rows)
    addresses = [reverse("job", args=[job.pk]), reverse("job-configuration", args=[job.pk])]
    for address in [*addresses, reverse("checkpoint", args=[rows[-1].pk])]:
        page = operator.get(address)
        assert page.status_code == 200
        assert 'id="finding-' not in page.content.decode()


def test_a_job_without_a_run_has_a_page(operator: Client, job: Job) -> None:
    for name in ("job", "job-configuration"):
        assert operator.get(reverse(name, args=[job.pk])).status_code == 200


def test_incident_shows_its_likely_cause(operator: Client, job: Job, failed: Checkpoint, now: datetime) -> None:
    incident = make.make_incident(make.make_rule(job), now)
    incident.events.update(evidence={"last_row": failed.pk, "count": 3})
    page = operator.get(reverse("incident", args=[incident.pk])).content.decode()
    assert "Probable cause" in page
    assert SAYS in page
    Incident.objects.update(kind="cluster_unreachable")
    assert SAYS not in operator.get(reverse("incident", args=[incident.pk])).content.decode()


def test_api_returns_the_same_diagnosis(operator: Client, job: Job, failed: Checkpoint, now: datetime) -> None:
    incident = make.make_incident(make.make_rule(job), now)
    incident.events.update(evidence={"last_row": failed.pk})
    body = operator.get(f"/api/v1/jobs/{job.pk}/diagnosis").json()
    assert body["checkpoint_id"] == failed.pk
    assert [each["name"] for each in body["advices"]] == ["one_retained"]
    (cause,) = body["causes"]
    assert (cause["name"], cause["confidence"]) == ("external_timeout", "certain")
    assert cause["sentence"].startswith(SAYS)
    assert cause["title_value"] == {"code": "diagnosis.external-timeout", "args": {}}
    assert cause["sentence_value"] == {
        "code": "diagnosis.thrown-in-task",
        "args": {
            "what": {"code": "diagnosis.no-answer", "args": {}},
            "text": "TimeoutError: <b>register</b> timed out",
            "task": "aggregate (2/4)",
        },
    }
    (at,) = cause["evidence"]
    assert (at["label"], at["value_value"]["code"], at["usual"], at["usual_value"]) == (
        "Thrown",
        "diagnosis.time",
        "",
        None,
    )
    assert body["advices"][0]["advice"][0]["why_value"]["code"] == "diagnosis.retain-more"
    for path in (f"checkpoints/{failed.pk}", f"incidents/{incident.pk}"):
        assert operator.get(f"/api/v1/{path}/diagnosis").json() == [cause]
