"""Only some answers show that no job manager is at the address of a cluster that has ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboard.stack.ports import any_free
from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection
from monitoring.engine.errors import EngineError
from monitoring.recovery.stages.base import jobs_of
from tests.monitoring.engine.answering import AnsweringEngine, Transfer, answering_engine

PATH = "/jobs/overview"
PAGE = b"<html>nginx</html>"
STARTING = b'{"errors":["Service temporarily unavailable due to an ongoing leader election. Please refresh."]}'


@pytest.fixture
def server() -> Iterator[AnsweringEngine]:
    with answering_engine() as started:
        yield started


async def asked(url: str, *, cluster_over: bool = True) -> object:
    async with FlinkClient(Connection(url), read_limit_s=60) as client:
        return await jobs_of(client, cluster_over=cluster_over)


def answers(server: AnsweringEngine, body: bytes, status: int = 200, cut_at: int | None = None) -> None:
    server.bodies = {PATH: body}
    server.transfers = {PATH: Transfer(status, "text/html", cut_at)}


async def test_a_job_manager_there_has_jobs(server):
    answers(server, b'{"jobs": []}')
    assert await asked(server.url) == ()


@pytest.mark.parametrize("status", [404, 410, 502, 503, 504])
async def test_a_server_in_between_shows_that_no_job_manager_is_there(server, status):
    answers(server, PAGE, status)
    assert await asked(server.url) is None
    with pytest.raises(EngineError):
        await asked(server.url, cluster_over=False)


async def test_nobody_there_shows_that_no_job_manager_is_there():
    assert await asked(f"http://127.0.0.1:{any_free()}") is None


@pytest.mark.parametrize(
    ("status", "body"),
    [
        *((status, PAGE) for status in (200, 302, 400, 401, 403, 407, 408, 429, 500)),
        (503, STARTING),
        (200, b'{"jobs": 1}'),
    ],
)
async def test_an_answer_that_may_hide_a_job_manager_shows_nothing(server, status, body):
    answers(server, body, status)
    with pytest.raises(EngineError):
        await asked(server.url)


async def test_an_answer_that_breaks_off_shows_nothing(server):
    answers(server, b'{"jobs": []}', cut_at=5)
    with pytest.raises(EngineError):
        await asked(server.url)


async def test_a_server_without_tls_shows_nothing(server):
    with pytest.raises(EngineError):
        await asked(server.url.replace("http://", "https://"))
