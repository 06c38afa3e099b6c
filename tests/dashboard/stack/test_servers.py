from __future__ import annotations

import psycopg
import pytest
import redis
from django.contrib.auth.models import User
from kazoo.client import KazooClient


def test_postgres_answers_and_has_its_database(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("waymark",)


@pytest.mark.django_db
def test_django_tests_run_on_the_real_postgres() -> None:
    User.objects.create_user("ann")
    assert User.objects.get().username == "ann"


def test_redis_answers_only_with_its_password(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.ping()
    with (
        redis.Redis.from_url("redis://" + redis_url.split("@")[1]) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()


@pytest.mark.zookeeper
def test_zookeeper_stores_a_node(zookeeper_hosts: str) -> None:
    client = KazooClient(hosts=zookeeper_hosts)
    client.start(timeout=20)
    try:
        client.create("/test-stack", b"kept")
        assert client.get("/test-stack")[0] == b"kept"
    finally:
        client.stop()
        client.close()
