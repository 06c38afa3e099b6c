"""Fixtures of real Flink: a session cluster for each version of the profile, shared by a pytest worker's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection
from tests.flink_distribution import flink_or_skip
from tests.monitoring.flink.cluster import FlinkCluster
from tests.monitoring.flink.jobs import CountJobs
from tests.monitoring.flink.program import compile_jobs, packed
from tests.profile import PROFILE

# How long Flink keeps the result of an operation (default: five minutes). Tests see it expire, but not before a slow
# machine has read it.
STORE_S = 20
# For a job whose savepoint must still be in the history, of ten checkpoints, when its result has expired.
SELDOM = {"execution.checkpointing.interval": "10 s"}
LONG = pytest.mark.nightly


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.flink)


@pytest.fixture(scope="session", params=PROFILE.flink_versions)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def libraries(version: str) -> Path:
    return flink_or_skip(version)


@pytest.fixture(scope="session")
def jars(libraries: Path, java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return jars by name: CountJob, two versions of LedgerJob, and `misfit`, which cannot restore their state."""
    classes = compile_jobs(libraries, java_home, tmp_path_factory.mktemp("jars"))
    ledgers = {
        "ledger-1": "version=1\nuid=ledger",
        "ledger-2": "version=2\nuid=ledger",
        "misfit": "version=3\nuid=other",
    }
    made = {name: packed(classes, "LedgerJob", {"ledger.properties": text}) for name, text in ledgers.items()}
    return {"count": packed(classes, "CountJob"), **made}


@pytest.fixture(scope="session")
def jar(jars: dict[str, bytes]) -> bytes:
    return jars["count"]


@pytest.fixture(scope="session")
def flink(libraries: Path, java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    cluster = FlinkCluster(
        libraries,
        java_home,
        tmp_path_factory.mktemp("flink"),
        configuration={"rest.async.store-duration": f"{STORE_S} s"},
    )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def jobs(flink: FlinkCluster, jar: bytes, tmp_path: Path) -> Iterator[CountJobs]:
    with CountJobs(flink, jar, tmp_path) as started:
        yield started


@pytest.fixture
async def client(flink: FlinkCluster) -> AsyncIterator[FlinkClient]:
    async with FlinkClient(Connection(flink.url)) as client:
        yield client
