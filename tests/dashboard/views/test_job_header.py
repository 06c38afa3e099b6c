"""The heading of a job names the job in its engine: the engine's job ID, and Flink's page of the job."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from monitoring.models import Account, Authentication, Cluster, Discovery, Engine, Grant, Job, Run, RunState
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db

_PAGE = re.compile(r'href="([^"]+)"[^>]*>Flink web UI<')


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now, "flink", engine=Engine.FLINK))
    make.make_run(job, now, engine_job_id="56883f7b" * 4)
    return job


def header(client: Client, job: Job) -> str:
    return client.get(reverse("job-header", args=[job.pk])).content.decode()


def flink_pages(client: Client, job: Job) -> list[str]:
    return _PAGE.findall(header(client, job))


def test_engine_job_id_has_a_button_that_copies_it(viewer: Client, job: Job) -> None:
    page = header(viewer, job)
    assert f'id="engine-job-id">{"56883f7b" * 4}</code>' in page
    assert 'data-copy-text="engine-job-id"' in page


def test_job_without_a_run_has_no_engine_job_id(viewer: Client, job: Job) -> None:
    Job.objects.update(current_run=None)
    assert "engine-job-id" not in header(viewer, job)


def test_flinks_page_of_a_live_and_of_an_ended_job_is_linked(viewer: Client, job: Job, now: datetime) -> None:
    job_id = "56883f7b" * 4
    assert flink_pages(viewer, job) == [f"http://flink.example:8081/#/job/running/{job_id}/overview"]
    Cluster.objects.update(rest_url="https://flink.example/proxy/")
    Run.objects.update(state=RunState.FAILED, ended_at=now)
    assert flink_pages(viewer, job) == [f"https://flink.example/proxy/#/job/completed/{job_id}/overview"]


@pytest.mark.parametrize(
    "fields",
    [
        {"engine": Engine.SPARK},
        {"engine": Engine.UNKNOWN},
        {"discovery": Discovery.ZOOKEEPER},
        {"authentication": Authentication.BEARER},
        {"client_certificate": "-----BEGIN CERTIFICATE-----"},
        {"rest_url": ""},
        {"rest_url": "http://ada:secret@flink.example:8081"},
        {"rest_url": "http://flink.example:8081?token=secret"},
        {"rest_url": "javascript:alert(1)"},
    ],
    ids=lambda fields: ",".join(map(str, fields.values())),
)
def test_address_that_a_browser_may_not_open_is_not_linked(viewer: Client, job: Job, fields: dict[str, Any]) -> None:
    Cluster.objects.update(**fields)
    assert flink_pages(viewer, job) == []


def test_lost_job_has_no_page_in_flink(viewer: Client, job: Job) -> None:
    Run.objects.update(state=RunState.LOST)
    assert flink_pages(viewer, job) == []


def test_reader_of_the_job_only_does_not_see_the_address_of_its_cluster(job: Job, now: datetime) -> None:
    user = User.objects.create_user("grace")
    Account.objects.create(user=user, granted_only=True)
    Job.objects.update(labels={"team": "payments"})
    Grant.objects.create(user=user, role="viewer", selector="team=payments", created_at=now, created_by="admin")
    client = Client()
    client.force_login(user)
    page = header(client, job)
    assert "56883f7b" in page
    assert "flink.example" not in page
