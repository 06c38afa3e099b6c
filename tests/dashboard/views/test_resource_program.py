"""The page shows and changes the program of a job that the Flink operator runs, which Kubernetes has."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import reverse

from monitoring.models import DiscoverySource, Job, RestartAttempt
from tests.monitoring.discovery.operated_job import make_job
from tests.monitoring.discovery.played_kubernetes import FLINK, SESSION_JOB
from tests.monitoring.discovery.played_operator import PlayedOperator
from tests.waiting import eventually

pytestmark = pytest.mark.django_db
TYPED = {
    "image": "orders:2",
    "jar_uri": "local:///opt/orders.jar",
    "entry_class": "",
    "program_args": "--topic\r\na",
    "parallelism": "2",
    "state": "stop",
    "goes_back": "on",
    "note": "fixes the sums",
}


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="pw-ada-1"))
    return client


def page_of(job: Job) -> str:
    return reverse("job-launch", args=[job.pk])


def text(response: object) -> str:
    return " ".join(response.content.decode().split())  # type: ignore[attr-defined]


def test_the_page_shows_what_the_resource_says_now(viewer: Client, operated_job: Job, operated: PlayedOperator) -> None:
    spec = operated.kubernetes.objects[FLINK, "prod", "orders"]["spec"]
    operated.kubernetes.put("orders", spec=spec | {"image": "orders:<b>hotfix"})
    page = text(viewer.get(page_of(operated_job)))
    assert 'value="orders:&lt;b&gt;hotfix"' in page
    assert "prod/orders" in page
    assert "Your account is read-only." in page
    assert "Redeploy the job</button>" not in page


def test_a_change_is_a_restart_through_the_operator(admin: Client, operated_job: Job) -> None:
    response = admin.post(page_of(operated_job), TYPED)
    attempt = RestartAttempt.objects.get()
    assert response.url == reverse("restart-progress", args=[attempt.pk])
    assert (attempt.launch["was"]["image"], attempt.launch["now"]["image"]) == ("orders:1", "orders:2")
    assert (attempt.goes_back, attempt.from_stop, attempt.resource["name"]) == (True, True, "orders")
    assert attempt.reason == "ada asked to start it with another image (fixes the sums), from its latest state."


def test_a_session_job_has_no_image_of_its_own(admin: Client, operated: PlayedOperator, db: None) -> None:
    operated.kubernetes.put("session", spec={})
    job = make_job(operated, operated.create("orders", kind=SESSION_JOB), "session")
    assert 'name="image"' not in text(admin.get(page_of(job)))
    admin.post(page_of(job), TYPED | {"parallelism": "4"})
    now = RestartAttempt.objects.get().launch["now"]
    assert (now["image"], now["parallelism"]) == ("", 4)


def test_an_operator_can_only_rescale(operator: Client, operated_job: Job) -> None:
    operator.post(page_of(operated_job), TYPED | {"parallelism": "4"})
    attempt = RestartAttempt.objects.get()
    assert (attempt.launch["now"]["image"], attempt.launch["now"]["parallelism"]) == ("orders:1", 4)
    assert "rescale it from 2 to 4" in attempt.reason


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ({"image": "orders 2"}, "a value without spaces is needed"),
        ({"parallelism": "0"}, "greater than or equal to 1"),
        ({"image": "orders:1"}, "Nothing is changed"),
        ({"program_args": "--password\r\nhidden (00000000)"}, "has a hidden value that is not stored"),
        ({"state": "savepoint-999999"}, "Select a valid choice"),
    ],
)
def test_a_wrong_value_is_named_and_the_input_is_kept(
    admin: Client, operated_job: Job, typed: dict[str, str], says: str
) -> None:
    response = admin.post(page_of(operated_job), TYPED | typed)
    assert response.status_code == 422
    assert says in text(response)
    assert "fixes the sums" in text(response)
    assert not RestartAttempt.objects.exists()


def test_a_resource_that_was_changed_since_the_page_was_loaded_is_not_overwritten(
    admin: Client, operated_job: Job, operated: PlayedOperator
) -> None:
    shown = admin.get(page_of(operated_job)).context["form"].shown_values
    spec = operated.kubernetes.objects[FLINK, "prod", "orders"]["spec"]
    operated.kubernetes.put("orders", spec=spec | {"image": "orders:hotfix"})
    response = admin.post(page_of(operated_job), TYPED | {"shown_values": shown})
    assert response.status_code == 422
    assert "Image is now orders:hotfix" in text(response)
    assert not RestartAttempt.objects.exists()


def test_secrets_in_arguments_are_hidden_and_kept(admin: Client, operated_job: Job, operated: PlayedOperator) -> None:
    spec = operated.kubernetes.objects[FLINK, "prod", "orders"]["spec"]
    secret = spec | {"job": spec["job"] | {"args": ["--db.password", "s3cr3t-x"]}}
    operated.kubernetes.put("orders", spec=secret)
    form = admin.get(page_of(operated_job)).context["form"]
    assert "s3cr3t-x" not in text(admin.get(page_of(operated_job)))
    admin.post(page_of(operated_job), TYPED | {"program_args": form["program_args"].value()})
    launch = RestartAttempt.objects.get().launch
    assert launch["now"]["program_args"] == ["--db.password", "s3cr3t-x"]
    assert launch["was"]["program_args"] == launch["now"]["program_args"]


def test_without_kubernetes_the_page_says_why(admin: Client, operated_job: Job, operated: PlayedOperator) -> None:
    operated.kubernetes.forbidden = {("get", FLINK)}
    page = text(admin.get(page_of(operated_job)))
    assert "The program of this job cannot be shown" in page
    assert "may not get flinkdeployments.flink.apache.org in the namespace prod" in page
    assert admin.post(page_of(operated_job), TYPED).status_code == 422
    assert not RestartAttempt.objects.exists()


def test_a_source_that_may_not_restart_jobs_refuses_the_change(admin: Client, operated_job: Job) -> None:
    DiscoverySource.objects.update(may_change_resources=False)
    assert "if an administrator allows that in the source east" in text(admin.get(page_of(operated_job)))
    response = admin.post(page_of(operated_job), TYPED)
    assert response.status_code == 422
    assert "only if the source east allows it" in text(response)


def test_the_configuration_page_leads_to_the_program(viewer: Client, operated_job: Job) -> None:
    page = text(viewer.get(reverse("job-configuration", args=[operated_job.pk])))
    assert f'href="{page_of(operated_job)}"' in page
    assert "The Flink operator starts this job from the resource prod/orders" in page


OPEN_TRANSACTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
    AND backend_type = 'client backend'
"""


@pytest.mark.django_db(transaction=True)
def test_a_kubernetes_that_hangs_costs_the_reader_three_seconds_and_no_transaction(
    viewer: Client, operated_job: Job, operated: PlayedOperator
) -> None:
    operated.kubernetes.silent = True

    def view() -> str:
        try:
            return text(viewer.get(page_of(operated_job)))
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as reader:
        page = reader.submit(view)
        eventually("the page waits for Kubernetes", lambda: operated.kubernetes.requests["get", FLINK])
        with connection.cursor() as cursor:
            cursor.execute(OPEN_TRANSACTIONS)
            assert cursor.fetchone() == (0,)
        assert "did not answer" in page.result()
        assert "within 3 s." in page.result()
        assert f'<a href="{page_of(operated_job)}">Try again</a>' in page.result()
