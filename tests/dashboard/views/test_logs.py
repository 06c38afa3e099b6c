"""Operators can find, search, follow and download the log of a job's driver. Secrets in it are masked."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from html import unescape

import pytest
from django.test import Client
from django.urls import reverse
from pytest_httpserver import HTTPServer

from dashboard.queries.logs import PART_BYTES
from monitoring.models import Checkpoint, Engine, Run, RunException, RunState
from tests.dashboard import builders as make
from tests.dashboard.log_server import LogServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(now: datetime, httpserver: HTTPServer) -> Run:
    cluster = make.make_cluster(now)
    cluster.rest_url = httpserver.url_for("").rstrip("/")
    cluster.save()
    return make.make_run(make.make_job(cluster), now)


@pytest.fixture
def job_manager(httpserver: HTTPServer, run: Run, now: datetime) -> LogServer:
    return LogServer(httpserver, run, now)


def page(client: Client, run: Run, **asked: object) -> str:
    answer = client.get(reverse("job-logs", args=[run.job_id]), asked)
    assert answer.status_code == 200, answer
    return answer.content.decode()


def shown(text: str) -> str:
    found = re.search(r'<pre class="log"[^>]*>(.*?)</pre>', text, re.DOTALL)
    assert found is not None, "the page has no log"
    return found[1]


def test_the_page_shows_the_end_of_the_newest_attempts_log_and_follows_it(
    operator: Client, run: Run, job_manager: LogServer
) -> None:
    job_manager.logs = {"driver-1.log": b"the first\n", "driver-2.log": b"a <b>\nlast line\n"}
    text = page(operator, run)
    assert shown(text) == "a &lt;b&gt;\nlast line\n"
    assert 'id="log-follow" checked' in text
    assert re.search(r"<option value=\"driver-1.log\">1, [^<]*first failure", text)
    assert shown(page(operator, run, log="driver-1.log")) == "the first\n"


def test_a_long_log_starts_at_a_line_and_links_its_earlier_part(
    operator: Client, run: Run, job_manager: LogServer
) -> None:
    job_manager.logs = {"driver-1.log": b"".join(b"line %06d\n" % number for number in range(20_000))}
    text = page(operator, run)
    assert shown(text).startswith("line 01")
    assert shown(text).endswith("line 019999\n")
    (start,) = re.findall(r"start=(\d+)\">Earlier", text)
    earlier = page(operator, run, log="driver-1.log", start=start)
    assert "Later" in earlier
    assert "log-follow" not in earlier


def test_secrets_are_masked_in_the_log_and_cannot_be_searched_for(
    operator: Client, run: Run, job_manager: LogServer
) -> None:
    job_manager.logs = {"driver-1.log": b"connects with password=hunter2\nand hunter2 is prose\n"}
    assert "password=hidden (" in shown(page(operator, run))
    text = page(operator, run, text="password=hunter2")
    assert "No line of this log contains “password=hunter2”." in text
    assert "1 line contains" in page(operator, run, text="CONNECTS")


def test_a_match_is_shown_within_the_log(operator: Client, run: Run, job_manager: LogServer) -> None:
    job_manager.logs = {"driver-1.log": b"one\ntwo\nthree\n"}
    text = page(operator, run, text="tw")
    (start,) = re.findall(r"start=(\d+)#log", text)
    there = page(operator, run, log="driver-1.log", text="tw", start=start)
    assert shown(there) == 'one\n<mark id="log-here">two</mark>\nthree\n'


def test_a_time_opens_the_log_of_the_attempt_that_ran_then(operator: Client, run: Run, job_manager: LogServer) -> None:
    job_manager.logs = {
        "driver-1.log": b"before\nat the moment\nafter\n",
        "driver-2.log": b"at the moment of another\n",
    }
    at = job_manager.started(1) + timedelta(seconds=30)
    assert '<mark id="log-here">at the moment</mark>' in shown(page(operator, run, at=at.isoformat()))
    assert shown(page(operator, run, at="yesterday")) == "at the moment of another\n"


def test_new_text_has_only_complete_lines(operator: Client, run: Run, job_manager: LogServer) -> None:
    job_manager.logs = {"driver-1.log": b"old\nnew\nbegin of"}

    def news(start: int) -> dict[str, object]:
        address = reverse("job-log-news", args=[run.job_id])
        return dict(operator.get(address, {"run": run.number, "log": "driver-1.log", "start": start}).json())

    assert news(4) == {"text": "new\n", "end": 8, "size": 16}
    assert news(8) == {"text": "", "end": 8, "size": 16}
    assert news(99)["size"] == 16, "it was cut"


def test_the_download_has_the_whole_log_without_secrets(operator: Client, run: Run, job_manager: LogServer) -> None:
    line = b"x" * 99 + b"\n"
    job_manager.logs = {"driver-1.log": line * 30_000 + b"token=abcdef123456\nthe end"}
    address = reverse("job-log-download", args=[run.job_id])
    answer = operator.get(address, {"run": run.number, "log": "driver-1.log"})
    content = b"".join(answer.streaming_content)  # type: ignore[attr-defined]
    assert content.startswith(line)
    assert b"abcdef123456" not in content
    assert content.endswith(b"\nthe end")
    assert len(content) > len(line) * 30_000 > 10 * PART_BYTES
    assert 'filename="flights-by-route-run-1-driver-1.log"' in answer.headers["Content-Disposition"]


def test_an_unreachable_cluster_and_a_run_without_logs_have_different_texts(
    operator: Client, run: Run, job_manager: LogServer
) -> None:
    assert "No log" in page(operator, run)
    run.job.cluster.rest_url = "http://127.0.0.1:1"
    run.job.cluster.save()
    text = page(operator, run)
    assert "The log cannot be read." in text
    assert "<b>No log</b>" not in text


def test_the_log_page_of_a_flink_job_explains_that_there_is_no_log(operator: Client, now: datetime) -> None:
    run = make.make_run(make.make_job(make.make_cluster(now, engine=Engine.FLINK)), now)
    assert "Available for PySpark jobs only" in page(operator, run)


def test_the_log_is_linked_from_an_exception_and_only_for_operators(
    operator: Client, viewer: Client, run: Run, job_manager: LogServer, now: datetime
) -> None:
    RunException.objects.create(run=run, at=now, name="ValueError", digest="1", root_cause="a bad row")
    address = reverse("job-exceptions", args=[run.job_id])
    link = f"{reverse('job-logs', args=[run.job_id])}?run=1&amp;at="
    assert link in operator.get(address).content.decode()
    assert link not in viewer.get(address).content.decode()
    assert viewer.get(reverse("job-logs", args=[run.job_id])).status_code == 403


@pytest.fixture
def ran_before(run: Run, job_manager: LogServer, httpserver: HTTPServer, now: datetime) -> Run:
    """Return the first run, whose second attempt ran at the time in question. The job has a newer run too."""
    job_manager.logs = {
        "driver-1.log": b"of another attempt\nat the moment of another\n",
        "driver-2.log": b"before\nat the moment\nafter\n",
    }
    newer = make.make_run(run.job, now, age=timedelta(minutes=1))
    LogServer(httpserver, newer, now).logs = {"driver-1.log": b"of another run\nat the moment of another\n"}
    return run


def linked(client: Client, address: str, text: str) -> str:
    """Return the log page behind the link with the given text."""
    page = client.get(address).content.decode()
    link = re.search(rf'<a [^>]*href="([^"]*/logs/[^"]*)"[^>]*>{text}</a>', page)
    assert link is not None, f"{address} has no link {text!r}"
    target, fragment = unescape(link[1]).split("#")
    assert fragment == "log"
    answer = client.get(target).content.decode()
    assert 'id="log"' in answer
    return shown(answer)


def test_a_failed_checkpoint_leads_to_the_log_of_its_attempt_at_that_time(
    operator: Client, viewer: Client, ran_before: Run, job_manager: LogServer
) -> None:
    at = job_manager.started(2) + timedelta(seconds=30)
    [checkpoint] = make.make_checkpoints(ran_before, at, make.Shape(count=1, failed=(0,)))
    Checkpoint.objects.filter(pk=checkpoint.pk).update(failed_at=at)
    address = reverse("checkpoint", args=[checkpoint.pk])
    assert '<mark id="log-here">at the moment</mark>' in linked(operator, address, "Driver log at this time")
    assert "/logs/" not in viewer.get(address).content.decode()


def test_a_checkpoint_that_was_completed_has_no_link_to_a_log(
    operator: Client, ran_before: Run, job_manager: LogServer
) -> None:
    [checkpoint] = make.make_checkpoints(ran_before, job_manager.started(2), make.Shape(count=1))
    assert "Driver log at this time" not in operator.get(reverse("checkpoint", args=[checkpoint.pk])).content.decode()


def test_an_incident_leads_to_the_log_of_the_attempt_that_ran_when_it_opened(
    operator: Client, viewer: Client, ran_before: Run, job_manager: LogServer
) -> None:
    incident = make.make_incident(make.make_rule(ran_before.job), job_manager.started(2) + timedelta(seconds=30))
    address = reverse("incident", args=[incident.pk])
    assert '<mark id="log-here">at the moment</mark>' in linked(operator, address, "Driver log")
    assert "/logs/" not in viewer.get(address).content.decode()


def test_failed_runs_and_their_restarts_link_the_log_at_the_failure(
    operator: Client, viewer: Client, run: Run, now: datetime
) -> None:
    attempt = make.make_attempt(run.job, now, old_run=run)
    pages = (reverse("job-runs", args=[run.job_id]), reverse("restart-progress", args=[attempt.pk]))
    for address in pages:
        assert "Driver log at the failure" not in operator.get(address).content.decode()
    Run.objects.filter(pk=run.pk).update(state=RunState.FAILED, ended_at=now)
    for address in pages:
        assert "Driver log at the failure" not in viewer.get(address).content.decode()
        text = operator.get(address).content.decode()
        (link,) = re.findall(r'href="([^"]+)"[^>]*>Driver log at the failure', text)
        path, _, query = unescape(link).partition("?")
        assert path == reverse("job-logs", args=[run.job_id])
        assert query.startswith(f"run={run.number}&at={now.year}-")
        assert query.endswith("#log")
