"""A maintenance window silences only its jobs, and neither other clusters nor Waymark itself."""

from __future__ import annotations

import pytest

from monitoring.alerts.maintenance import covers
from monitoring.models import Cluster, Incident, Job, MaintenanceWindow

EU, US = Cluster(pk=1, name="eu", rest_url="http://eu:8081"), Cluster(pk=2, name="us", rest_url="http://us:8081")
ORDERS = Job(pk=1, name="orders", cluster=EU, labels={"team": "payments"})
FLIGHTS = Job(pk=2, name="flights", cluster=EU)
ABOUT = {
    "orders": Incident(job=ORDERS, cluster=EU),
    "flights": Incident(job=FLIGHTS, cluster=EU),
    "eu": Incident(cluster=EU),
    "us": Incident(cluster=US),
    "Waymark": Incident(),
}


@pytest.mark.parametrize(
    ("window", "silent"),
    [
        (MaintenanceWindow(job=ORDERS), {"orders"}),
        (MaintenanceWindow(cluster=EU), {"orders", "flights", "eu"}),
        (MaintenanceWindow(selector="team=payments"), {"orders"}),
        (MaintenanceWindow(selector="!nothing-has-it"), {"orders", "flights"}),
    ],
    ids=["job", "cluster", "label", "every job"],
)
def test_a_window_silences_its_jobs_and_neither_other_clusters_nor_waymark(
    window: MaintenanceWindow, silent: set[str]
) -> None:
    assert {name for name, incident in ABOUT.items() if covers(window, incident)} == silent
