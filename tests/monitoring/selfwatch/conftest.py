from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from monitoring import broker


@pytest.fixture
def redis(redis_url: str, settings: Any) -> Iterator[Redis]:
    """Yield an empty Redis, which Waymark uses."""
    settings.CELERY_BROKER_URL = redis_url
    with broker.connect() as client:
        client.flushall()
        yield client
        client.flushall()
