from __future__ import annotations

import pytest

from monitoring.engine.connection import connection_of
from monitoring.engine.registration import register_embedded
from monitoring.models import Cluster, Engine


@pytest.mark.django_db
def test_the_embedded_job_manager_is_one_cluster_wherever_it_listens():
    first = register_embedded("http://127.0.0.1:8081")
    Cluster.objects.update(token="kept", poll_interval_s=7)
    second = register_embedded("http://127.0.0.1:9999")
    assert first.pk == second.pk
    assert (second.name, second.rest_url, second.engine) == ("waymark", "http://127.0.0.1:9999", Engine.SPARK)
    assert (second.token.reveal(), second.poll_interval_s, second.next_poll_at) == ("kept", 7, None)


@pytest.mark.django_db
def test_requests_use_the_last_registered_token():
    register_embedded("http://127.0.0.1:8081")
    assert connection_of(Cluster.objects.get()).authorization == ""
    register_embedded("http://127.0.0.1:8081", "of up")
    assert connection_of(Cluster.objects.get()).authorization == "Bearer of up"
    register_embedded("http://127.0.0.1:8081", "changed")
    assert connection_of(Cluster.objects.get()).authorization == "Bearer changed"
