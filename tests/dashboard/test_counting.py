"""One statement with several counts returns the same numbers as separate statements."""

from __future__ import annotations

import pytest
from django.utils import timezone

from dashboard.queries.counting import counts
from dashboard.queries.incidents import visible_incidents
from monitoring.models import Cluster, Job
from tests.dashboard.builders import make_cluster, make_job

pytestmark = pytest.mark.django_db


def test_combined_counts_equal_single_counts(django_assert_num_queries):
    cluster = make_cluster(timezone.now())
    for name in ("orders", "payments", "clicks"):
        make_job(cluster, name)
    asked = [
        Job.objects.all(),
        Job.objects.filter(name="orders").order_by("name"),
        Job.objects.none(),
        Cluster.objects.filter(pk__in=[]),
        Cluster.objects.filter(enabled=True),
        visible_incidents(),
    ]
    with django_assert_num_queries(1):
        found = counts(*asked)
    assert found == [3, 1, 0, 0, 1, 0]
