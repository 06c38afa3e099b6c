"""Requests that a page of another site lets a browser send are refused because of their `Host` or `Origin`."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from dashboard.stack.ports import any_free
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, running_job_manager
from tests.checkpointing.rest.raw_http import call


async def status(manager: RunningJobManager, **headers: str) -> int:
    return (await call(manager.address, "GET", "/jobs", headers)).status


@pytest.mark.parametrize("host", ["127.0.0.1:8081", "127.9.9.9", "localhost:8081", "LOCALHOST", "[::1]:8081"])
async def test_names_of_loopback_are_known(manager: RunningJobManager, host: str) -> None:
    assert await status(manager, Host=host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example:8081", "127.0.0.1.evil.example", "localhost.evil.example", "192.0.2.7:8081", "", "[", "a@b"]
)
async def test_any_other_name_is_refused(manager: RunningJobManager, host: str) -> None:
    answer = await call(manager.address, "GET", "/jobs", {"Host": host})
    assert answer.status == 400
    assert "is not a name of this job manager; WAYMARK_JOBMANAGER_HOSTS may add it" in answer.text


async def test_a_page_with_a_rebound_dns_name_can_upload_nothing(manager: RunningJobManager) -> None:
    """With DNS rebinding, the page and the job manager have the same origin for the browser."""
    headers = {"Host": "evil.example:8081", "Origin": "http://evil.example:8081", "Content-Type": "multipart/form-data"}
    assert (await call(manager.address, "POST", "/jars/upload", headers, b"x")).status == 400


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://127.0.0.1:8000", "http://127.0.0.1", "null", "file:"]
)
async def test_a_foreign_page_is_refused_for_every_path(manager: RunningJobManager, origin: str) -> None:
    for method, path in (("GET", "/jobs"), ("POST", "/jars/upload"), ("PATCH", f"/jobs/{'a' * 32}"), ("GET", "/none")):
        answer = await call(manager.address, method, path, {"Origin": origin})
        assert (answer.status, "pages of other sites" in answer.text) == (403, True)


async def test_the_origin_of_the_job_manager_is_allowed_and_gets_no_cors_headers(manager: RunningJobManager) -> None:
    answer = await call(manager.address, "GET", "/jobs", {"Origin": manager.address})
    assert answer.status == 200
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


async def test_a_foreign_page_cannot_open_the_drivers_websocket(manager: RunningJobManager) -> None:
    host, _, port = manager.address.removeprefix("http://").rpartition(":")
    for name, origin in ((host, "http://evil.example"), ("evil.example", f"http://evil.example:{port}")):
        with pytest.raises(InvalidStatus) as refusal:
            async with connect(f"ws://{name}:{port}/drivers", host=host, port=int(port), origin=origin, proxy=None):  # type: ignore[arg-type]
                pass
        assert refusal.value.response.status_code == 403


async def test_names_may_be_added_and_proxies_that_change_the_host(tmp_path: Path) -> None:
    names = "jm.example, ui.example:8443"
    async with running_job_manager(tmp_path, WAYMARK_JOBMANAGER_HOSTS=names) as manager:
        for host in ("jm.example", "jm.example:8081", "ui.example"):
            assert await status(manager, Host=host) == 200
        assert await status(manager, Origin="https://ui.example:8443") == 200
        assert await status(manager, Origin="https://ui.example") == 403
        assert await status(manager, Host="other.example") == 400


async def test_the_address_that_drivers_get_is_known(tmp_path: Path) -> None:
    port = str(any_free())
    environ = {"WAYMARK_JOBMANAGER_ADDRESS": "http://jobmanager-0.example:8081", "WAYMARK_JOBMANAGER_PORT": port}
    async with running_job_manager(tmp_path, **environ) as manager:
        manager.address = f"http://127.0.0.1:{port}"
        assert await status(manager, Host="jobmanager-0.example:8081") == 200


async def test_a_job_manager_for_all_addresses_accepts_the_called_one(tmp_path: Path) -> None:
    port = str(any_free())
    environ = {
        "WAYMARK_JOBMANAGER_HOST": "0.0.0.0",
        "WAYMARK_JOBMANAGER_PORT": port,
        "WAYMARK_JOBMANAGER_TOKEN": "secret",
    }
    async with running_job_manager(tmp_path, **environ) as manager:
        manager.address = f"http://127.0.0.1:{port}"
        for host in ("127.0.0.1", socket.gethostname()):
            assert await status(manager, Host=host, Authorization="Bearer secret") == 200
        assert await status(manager, Host="192.0.2.7", Authorization="Bearer secret") == 400
