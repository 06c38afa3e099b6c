"""A savepoint whose answer was lost, and whose result the engine has deleted, is found and not taken again."""

from __future__ import annotations

import threading
import uuid
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from monitoring.engine.operations import Forgotten
from monitoring.models import Cluster, Job, Savepoint, SavepointOrigin, SavepointState
from monitoring.polling.poller import Poller
from monitoring.savepoints.cycle import advance
from monitoring.savepoints.request import request_savepoint
from monitoring.savepoints.settle import RETRY
from tests.monitoring.flink.cluster import FlinkCluster
from tests.monitoring.flink.conftest import SELDOM
from tests.monitoring.flink.jobs import CountJobs
from tests.tcp_proxy import TcpProxy
from tests.waiting import eventually


@pytest.mark.nightly
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("stops_job", [False, True])
def test_the_answer_is_lost_and_then_the_result(flink: FlinkCluster, jobs: CountJobs, stops_job: bool) -> None:
    job_id = jobs.start(f"lost {uuid.uuid4().hex}", configuration=SELDOM)
    proxy = TcpProxy(flink.url.removeprefix("http://"))
    Cluster.objects.create(name=f"behind a proxy {uuid.uuid4().hex}", rest_url=f"http://{proxy.address}")
    try:
        _poll(timezone.now())
        job = Job.objects.get(current_run__engine_job_id=job_id)
        wanted = request_savepoint(job, SavepointOrigin.MANUAL, "ada", timezone.now(), stops_job=stops_job)
        _send_and_lose_the_answer(flink, job_id, proxy)
        row = Savepoint.objects.get(pk=wanted.pk)
        assert row.state == SavepointState.REQUESTED
        eventually("the engine forgot it", lambda: _status(jobs, job_id, row.trigger_id) == Forgotten())

        advance(timezone.now() + RETRY * 2)

        _poll(timezone.now() + timedelta(minutes=2))
        advance(timezone.now() + timedelta(minutes=2))
    finally:
        proxy.close()
    row.refresh_from_db()
    taken = _savepoints(flink, job_id)
    assert [row.path.removeprefix("file:")] == taken
    assert row.state == SavepointState.COMPLETED


def _poll(at: datetime) -> None:
    with Poller(lambda: at) as poller:
        poller.start_due()
        while poller.in_flight:
            poller.serve(30.0)


def _send_and_lose_the_answer(flink: FlinkCluster, job_id: str, proxy: TcpProxy) -> None:
    """Request a savepoint, and break the connection when it is complete, so that the answer is lost."""
    proxy.swallow_replies()

    def break_off() -> None:
        eventually("the savepoint is there", lambda: _savepoints(flink, job_id))
        proxy.cut()

    breaker = threading.Thread(target=break_off)
    breaker.start()
    advance(timezone.now())
    breaker.join()
    proxy.heal()


def _savepoints(flink: FlinkCluster, job_id: str) -> list[str]:
    return [str(path.parent) for path in flink.savepoints.glob(f"savepoint-{job_id[:6]}-*/_metadata")]


def _status(jobs: CountJobs, job_id: str, trigger: str) -> object:
    return jobs.ask(lambda client: client.savepoint_status(job_id, trigger))
