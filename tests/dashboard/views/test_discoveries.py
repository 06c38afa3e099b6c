"""Sources that find clusters: the list, the form, and what a source has found."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from monitoring.kubernetes import kinds
from monitoring.models import AuditEntry, Cluster, DiscoverySource, FoundResource, WatchedKind
from monitoring.reasons.columns import columns
from monitoring.reasons.discoveries import DiscoveryReason
from tests.dashboard import builders as make
from tests.monitoring.discovery.played_kubernetes import TOKEN, kubeconfig

pytestmark = pytest.mark.django_db
SERVER = "https://10.0.0.1:6443"
TYPED = {
    "name": "east",
    "kubeconfig": kubeconfig(SERVER),
    "namespaces": " payments,orders, payments",
    "label_selector": "team=air",
    "address_pattern": "https://flink.example.com/{namespace}/{name}/",
    "enabled": "on",
}


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("anna"))
    return client


def add(client: Client, **typed: str) -> Any:
    return client.post("/discoveries/add/", TYPED | typed)


def errors(client: Client, **typed: str) -> dict[str, list[str]]:
    answer = add(client, **typed)
    assert answer.status_code == 422
    assert TOKEN not in answer.content.decode()
    return dict(answer.context["form"].errors)


def test_a_source_is_added_and_its_kubeconfig_is_never_shown(admin: Client) -> None:
    page = admin.post("/discoveries/add/", TYPED, follow=True)
    source = DiscoverySource.objects.get()
    assert source.namespaces == "payments,orders"
    assert source.address_pattern == "https://flink.example.com/{namespace}/{name}"
    assert source.kubeconfig.reveal() == TYPED["kubeconfig"]
    entry = AuditEntry.objects.get(action="discovery.add")
    assert entry.details["now"]["kubeconfig"] == "set"
    for text in (page.content.decode(), str(entry.details), admin.get("/discoveries/1/edit/").content.decode()):
        assert TOKEN not in text
    assert "east" in admin.get("/discoveries/").content.decode()


def test_a_change_keeps_the_kubeconfig_and_reads_the_resources_again(admin: Client, now: datetime) -> None:
    add(admin)
    source = DiscoverySource.objects.get()
    WatchedKind.objects.create(source=source, kind="k", version="7")
    DiscoverySource.objects.update(claimed_by="a worker", next_look_at=now)
    admin.post(f"/discoveries/{source.pk}/edit/", TYPED | {"kubeconfig": "", "namespaces": ""})
    source.refresh_from_db()
    assert source.kubeconfig.reveal() == TYPED["kubeconfig"]
    assert (source.namespaces, source.claimed_by, source.next_look_at) == ("", "", None)
    assert not WatchedKind.objects.exists()
    assert AuditEntry.objects.get(action="discovery.change").details["now"] == {"namespaces": ""}
    admin.post(
        f"/discoveries/{source.pk}/edit/", TYPED | {"namespaces": "", "kubeconfig": kubeconfig(SERVER, token="n")}
    )
    assert AuditEntry.objects.filter(action="discovery.change").first().details["now"] == {"kubeconfig": "changed"}


@pytest.mark.parametrize(
    ("typed", "field", "message"),
    [
        ({"kubeconfig": ""}, "kubeconfig", "Enter a kubeconfig"),
        ({"kubeconfig": kubeconfig(SERVER, tokenFile="/etc/passwd")}, "kubeconfig", "user.tokenFile"),
        ({"kubeconfig": kubeconfig("http://169.254.169.254")}, "kubeconfig", "169.254.169.254"),
        ({"namespaces": "Payments"}, "namespaces", "is not the name of a namespace"),
        ({"namespaces": ",".join(f"n{i}" for i in range(21))}, "namespaces", "at most 20"),
        ({"label_selector": "team<x>"}, "label_selector", "selector of Kubernetes"),
        ({"address_pattern": "http://one.example.com"}, "address_pattern", "{name}"),
        ({"address_pattern": "http://{name}.{0.__class__}"}, "address_pattern", "valid host"),
        ({"address_pattern": "http://{name}.b/{0}"}, "address_pattern", "braces"),
        ({"address_pattern": "file:///{name}"}, "address_pattern", "http://"),
        ({"name": ""}, "name", "required"),
    ],
)
def test_a_wrong_value_is_named(admin: Client, typed: dict[str, str], field: str, message: str) -> None:
    assert message in str(errors(admin, **typed)[field])
    assert not DiscoverySource.objects.exists()


def test_the_service_account_needs_no_kubeconfig(admin: Client) -> None:
    add(admin, in_cluster="on")
    source = DiscoverySource.objects.get()
    assert source.in_cluster
    assert not source.kubeconfig


def test_names_of_found_resources_are_escaped(admin: Client, now: datetime) -> None:
    source = DiscoverySource.objects.create(name="east", kubeconfig="x")
    cluster = make.make_cluster(now, "prod/orders")
    times = {"found_at": now, "changed_at": now, "namespace": "prod"}
    state = {"lifecycle": "STABLE", "job": "<b>RUNNING</b>"}
    problem = columns("problem", DiscoveryReason.OPERATOR_ERROR(error="<script>alert(1)</script>"))
    kind = kinds.FLINK_DEPLOYMENT.key
    FoundResource.objects.create(
        source=source, kind=kind, name="orders", cluster=cluster, state=state, **problem, **times
    )
    FoundResource.objects.create(source=source, kind=kinds.SPARK_OF_APACHE.key, name="etl", **times)
    forbidden = DiscoveryReason.FORBIDDEN(verb="list", resource="r", where=DiscoveryReason.IN_ALL_NAMESPACES())
    WatchedKind.objects.create(source=source, kind=kind, **columns("problem", forbidden))
    missing = DiscoveryReason.NOT_INSTALLED(resource=kinds.FLINK_SNAPSHOT.key)
    WatchedKind.objects.create(source=source, kind=kinds.FLINK_SNAPSHOT.key, **columns("problem", missing))
    page = admin.get(f"/discoveries/{source.pk}/").content.decode()
    assert "STABLE · &lt;b&gt;RUNNING&lt;/b&gt;" in page
    assert "<script>alert(1)" not in page
    assert "The account may not list r in all namespaces." in page
    assert "Not installed in this Kubernetes cluster: FlinkStateSnapshot." in page
    assert "watch its queries" in page
    own = admin.get(f"/clusters/{cluster.pk}/").content.decode()
    assert "prod/orders" in own
    assert "The operator reports: &lt;script&gt;" in own


def test_a_removed_source_leaves_its_clusters(admin: Client, now: datetime) -> None:
    source = DiscoverySource.objects.create(name="east", kubeconfig="x")
    cluster = make.make_cluster(now, "prod/orders")
    FoundResource.objects.create(source=source, name="orders", cluster=cluster, found_at=now, changed_at=now)
    assert "Its clusters stay" in admin.post(f"/discoveries/{source.pk}/remove/", follow=True).content.decode()
    assert not DiscoverySource.objects.exists()
    assert Cluster.objects.get() == cluster
