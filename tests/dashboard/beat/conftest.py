"""A Redis server that these tests may empty, stop and kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from monitoring import broker


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    client = broker.connect(redis_url)
    client.flushall()
    yield client
    client.flushall()
    client.close()
