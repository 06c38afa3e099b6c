"""A page shows one run. If the job has another run meanwhile, actions of the page are refused with the reason."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.urls import reverse

from monitoring.models import AttemptState, Job, RestartAttempt, RestartTrigger, Run, RunState, Savepoint
from tests.dashboard import builders as make
from tests.dashboard.views.test_launching import TYPED

pytestmark = pytest.mark.django_db

_HIDDEN = re.compile(r'name="(shown_\w+)" value="(\d*)"')


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_savepoint(make.make_run(job, now), now - timedelta(minutes=5))
    return job


def shown_on(client: Client, name: str, job: Job) -> dict[str, str]:
    """Return the hidden fields of the page's form, as a browser would send them."""
    found = dict(_HIDDEN.findall(client.get(reverse(name, args=[job.pk])).content.decode()))
    assert set(found) == {"shown_run", "shown_live"}
    return found


def send(client: Client, name: str, job: Job, shown: dict[str, str]) -> str:
    """Send the page's form and return the text of the response as one line."""
    typed = {"job-launch": TYPED, "job-restart": {"from": newest(job)}, "job-stop": {}}[name]
    answer = client.post(reverse(name, args=[job.pk]), typed | shown, follow=True)
    return " ".join(answer.content.decode().split()).replace("&#x27;", "'")


def newest(job: Job) -> str:
    return f"savepoint-{job.savepoints.filter(path__gt='').latest('requested_at').pk}"


def replaced(job: Job, now: datetime, trigger: str = RestartTrigger.MANUAL) -> Run:
    """Restart the job, and store its new run 20 min later."""
    attempt = restarted(job, now, trigger)
    old = job.current_run
    assert old is not None
    Run.objects.filter(pk=old.pk).update(state=RunState.FINISHED, ended_at=now)
    return make.make_run(job, now, age=timedelta(minutes=20), engine_job_id=attempt.engine_job_id)


def restarted(job: Job, now: datetime, trigger: str = RestartTrigger.MANUAL) -> RestartAttempt:
    attempt = RestartAttempt.objects.create(
        job=job,
        epoch=job.epoch + 1,
        trigger=trigger,
        state=AttemptState.SUCCEEDED,
        reason="because",
        requested_by="ada",
        old_run=job.current_run,
        engine_job_id="ab" * 16,
        launch_sent_at=now,
        launched_at=now - timedelta(minutes=20),
        created_at=now,
        ended_at=now,
        deadline_at=now,
    )
    job.epoch += 1
    job.save(update_fields=["epoch"])
    return attempt


def done(job: Job) -> bool:
    own = RestartAttempt.objects.exclude(reason="because")
    return own.exists() or Savepoint.objects.filter(stops_job=True).exists()


PAGES = ("job-restart", "job-launch", "job-stop")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_current_run_acts(operator: Client, job: Job, name: str) -> None:
    send(operator, name, job, shown_on(operator, name, job))
    assert done(job)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_a_replaced_run_does_nothing_and_names_the_new_run(
    operator: Client, job: Job, now: datetime, name: str
) -> None:
    old = shown_on(operator, name, job)
    replaced(job, now)
    page = send(operator, name, job, old)
    assert "Nothing was stopped" in page
    assert "Run 2 replaced run 1 20 min ago. Restart 1 (ada) started the new run." in page
    assert not done(job)

    send(operator, name, job, shown_on(operator, name, job))
    assert done(job)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_a_replaced_run_does_nothing_before_the_new_run_is_polled(
    operator: Client, job: Job, now: datetime, name: str
) -> None:
    old = shown_on(operator, name, job)
    restarted(job, now)
    page = send(operator, name, job, old)
    assert "Restart 1 (ada) replaced run 1 20 min ago. Waymark has not polled the new run yet." in page
    assert not done(job)


def test_a_run_started_by_the_automation_is_named(operator: Client, job: Job, now: datetime) -> None:
    old = shown_on(operator, "job-restart", job)
    replaced(job, now, RestartTrigger.AUTOMATIC)
    assert "Automatic restart 1 started the new run." in send(operator, "job-restart", job, old)


def test_a_page_that_shows_a_live_run_does_not_restart_a_stopped_job(operator: Client, job: Job, now: datetime) -> None:
    old = shown_on(operator, "job-restart", job)
    run = job.current_run
    assert run is not None
    Run.objects.filter(pk=run.pk).update(state=RunState.FINISHED, ended_at=now - timedelta(minutes=20))
    make.make_savepoint(run, now, path="file:/data/savepoint-stop", stops_job=True, requested_by="ada")
    page = send(operator, "job-restart", job, old)
    assert "Run 1 ended 20 min ago with status FINISHED. ada stopped the run with a savepoint." in page
    assert not RestartAttempt.objects.exists()


def test_a_page_that_shows_a_dead_run_does_not_replace_an_active_one(operator: Client, job: Job, now: datetime) -> None:
    Run.objects.update(state=RunState.LOST, ended_at=now)
    old = shown_on(operator, "job-restart", job)
    assert old["shown_live"] == "0"
    Run.objects.update(state=RunState.RUNNING, ended_at=None)
    assert "Run 1 is active again: RUNNING." in send(operator, "job-restart", job, old)
    assert not RestartAttempt.objects.exists()


@pytest.mark.parametrize("sent", ["", "x", "99999999999999999999", "-1"])
def test_a_form_without_a_run_of_the_job_does_nothing(operator: Client, job: Job, sent: str) -> None:
    page = send(operator, "job-restart", job, {"shown_run": sent, "shown_live": "1"})
    assert "This page does not belong to the current run of the job, run 1." in page
    assert not RestartAttempt.objects.exists()


def test_saving_a_launch_record_works_on_an_outdated_page(operator: Client, job: Job, now: datetime) -> None:
    old = shown_on(operator, "job-launch", job)
    replaced(job, now)
    operator.post(reverse("job-launch", args=[job.pk]), TYPED | old | {"now": "save"})
    assert job.launch_versions.count() == 1


def test_an_open_page_shows_by_itself_that_it_is_outdated(viewer: Client, job: Job, now: datetime) -> None:
    old = shown_on(viewer, "job-launch", job)
    address = reverse("job-moved-on", args=[job.pk])
    assert viewer.get(address, old).status_code == 204
    replaced(job, now)
    note = viewer.get(address, old).content.decode()
    assert "<b>This page is out of date.</b> Run 2 replaced run 1 20 min ago." in note
    for name in ("job-restart", "job-launch", "job-stop"):
        assert f'hx-get="{address}?shown_run=' in viewer.get(reverse(name, args=[job.pk])).content.decode()


def test_open_page_learns_when_its_run_ended(operator: Client, job: Job, now: datetime) -> None:
    old, address = shown_on(operator, "job-stop", job), reverse("job-moved-on", args=[job.pk])
    ended_at = now - timedelta(minutes=20)
    Run.objects.update(state=RunState.FINISHED, ended_at=ended_at)
    assert _ended_in(operator.get(address, old).content.decode()) == ended_at
    replaced(job, now)
    assert _ended_in(operator.get(address, old).content.decode()) == now


def test_run_without_a_known_end_ends_when_it_is_replaced(operator: Client, job: Job, now: datetime) -> None:
    old = shown_on(operator, "job-stop", job)
    restarted(job, now)
    assert _ended_in(operator.get(reverse("job-moved-on", args=[job.pk]), old).content.decode()) >= now


def _ended_in(note: str) -> datetime:
    (found,) = re.findall(r'data-run-ended="([^"]+)"', note)
    return datetime.fromisoformat(found)


@pytest.mark.parametrize("name", ["job-restart", "job-stop", "job-cancel"])
def test_ages_of_the_run_are_marked_for_the_script_that_stops_them(viewer: Client, job: Job, name: str) -> None:
    page = viewer.get(reverse(name, args=[job.pk])).content.decode()
    marked = re.findall(r"<(li|dd)\b[^>]* data-of-run>(.*?)</\1>", page, re.DOTALL)
    assert any("<time" in text and "run 1" in text.lower() for _, text in marked)


def test_stopping_several_jobs_skips_those_with_a_new_run(operator: Client, job: Job, now: datetime) -> None:
    other = make.make_job(job.cluster, "other")
    make.make_run(other, now)
    sent = {"jobs": [job.pk, other.pk], "deed": "stop"}
    question = operator.post(reverse("fleet-act"), sent).content.decode()
    shown = dict(_HIDDEN.findall(question))
    assert len(shown) == 4
    replaced(job, now)
    page = operator.post(reverse("fleet-act"), sent | {"confirmed": "on"} | shown, follow=True).content.decode()
    assert [each.job for each in Savepoint.objects.filter(stops_job=True)] == [other]
    assert "Run 2 replaced run 1 20 min ago." in page
