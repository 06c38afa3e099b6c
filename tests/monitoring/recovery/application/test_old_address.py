"""What answers at the address of a cluster that has ended decides whether its job may be started."""

from __future__ import annotations

import pytest

from tests.monitoring.recovery.application.conftest import died, only_job, restarted

pytestmark = pytest.mark.django_db


def test_an_ingress_without_a_cluster_is_no_obstacle(job, application, waymark, report):
    application.ingress = (404, b"default backend - 404")
    was = only_job(application)
    died(application, waymark, job)
    application.answers_from = 10  # nor while the next cluster starts
    report("FAILED", was)
    restarted(job, waymark)
    assert len(application.launches()) == 2


def test_nothing_is_started_while_a_server_there_refuses_the_credentials(job, application, waymark, report):
    application.ingress = (401, b"Authorization Required")
    was = only_job(application)
    died(application, waymark, job)
    report("FAILED", was)
    attempt = waymark.until("it is restarted", lambda: job.restart_attempts.first())
    waymark.until("it waits", lambda: "401" in str(attempt.steps.order_by("id").last().text))
    assert len(application.launches()) == 1
    application.ingress = None
    restarted(job, waymark)
    assert len(application.launches()) == 2
