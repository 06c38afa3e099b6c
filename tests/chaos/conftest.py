from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.cluster import JobManagers


@pytest.fixture
def job_managers(tmp_path: Path, zookeeper_hosts: str) -> Iterator[JobManagers]:
    """Yield two job managers: a leader and a standby."""
    managers = JobManagers(tmp_path, zookeeper_hosts)
    try:
        managers.start()
        managers.start()
        yield managers
    finally:
        managers.stop()
