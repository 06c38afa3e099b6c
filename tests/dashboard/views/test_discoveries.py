"""Sources that find clusters: the list, the form, and what a source has found."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from monitoring.discovery.yarn import applications
from monitoring.engine.connection import basic
from monitoring.kubernetes import kinds
from monitoring.models import AuditEntry, Cluster, DiscoverySource, FoundResource, WatchedKind
from monitoring.reasons.columns import columns
from monitoring.reasons.discoveries import DiscoveryReason
from tests.dashboard import builders as make
from tests.monitoring.discovery import played_kubernetes
from tests.monitoring.discovery.played_kubernetes import TOKEN, PlayedKubernetes, kubeconfig
from tests.monitoring.discovery.played_yarn import PlayedYarn

pytestmark = pytest.mark.django_db
SERVER = "https://10.0.0.1:6443"
RM = "http://10.0.0.1:8088"
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


def test_an_application_that_ended_is_shown_with_its_id_and_its_end(admin: Client, now: datetime) -> None:
    source = DiscoverySource.objects.create(name="hadoop", kind="yarn", addresses=RM)
    cluster = make.make_cluster(now, "root.prod/orders")
    FoundResource.objects.create(
        source=source,
        kind=applications.FLINK,
        namespace="root.prod",
        name="orders",
        uid="application_1_0001",
        cluster=cluster,
        state={"application": "KILLED", "final_status": "KILLED", "ended_at": "2026-01-02T03:04:05+00:00"},
        found_at=now,
        changed_at=now,
    )
    for page in (f"/discoveries/{source.pk}/", f"/clusters/{cluster.pk}/"):
        content = admin.get(page).content.decode()
        for text in ("application_1_0001", "KILLED", "ended <time", "2026-01-02"):
            assert text in content, (page, text)


def test_a_removed_source_leaves_its_clusters(admin: Client, now: datetime) -> None:
    source = DiscoverySource.objects.create(name="east", kubeconfig="x")
    cluster = make.make_cluster(now, "prod/orders")
    FoundResource.objects.create(source=source, name="orders", cluster=cluster, found_at=now, changed_at=now)
    assert "Its clusters stay" in admin.post(f"/discoveries/{source.pk}/remove/", follow=True).content.decode()
    assert not DiscoverySource.objects.exists()
    assert Cluster.objects.get() == cluster


YARN = {
    "name": "hadoop",
    "kind": "yarn",
    "addresses": f" {RM}/, http://10.0.0.2:8088",
    "authentication": "basic",
    "username": "ann",
    "password": "the-password",
    "queues": "root.prod , root.payments",
    "application_tags": "watch",
    "enabled": "on",
    # What the form of Kubernetes contains does not count.
    "namespaces": "Payments",
    "kubeconfig": "x",
}


def test_a_source_of_yarn_is_added_with_the_fields_of_yarn(admin: Client) -> None:
    page = admin.post("/discoveries/add/", YARN, follow=True)
    source = DiscoverySource.objects.get()
    assert source.address_list == [RM, "http://10.0.0.2:8088"]
    assert (source.queues, source.application_tags) == ("root.prod,root.payments", "watch")
    assert (source.namespaces, bool(source.kubeconfig)) == ("", False)
    assert source.address_pattern == "http://{address}"
    assert source.password.reveal() == "the-password"
    details = AuditEntry.objects.get(action="discovery.add").details["now"]
    assert (details["password"], details["addresses"]) == ("set", f"{RM},http://10.0.0.2:8088")
    form = admin.get(f"/discoveries/{source.pk}/edit/").content.decode()
    for text in (page.content.decode(), str(details), form):
        assert "the-password" not in text
    assert f"YARN · {RM}" in page.content.decode().replace("\n", "")
    assert "The password is sent to 10.0.0.2 without encryption." in page.content.decode()


@pytest.mark.parametrize(
    ("typed", "field", "message"),
    [
        ({"addresses": ""}, "addresses", "address of a ResourceManager"),
        ({"addresses": "rm:8088"}, "addresses", "http://"),
        ({"addresses": f"{RM}?user.name=ann"}, "addresses", "? or #"),
        ({"addresses": ",".join(f"{RM}/{i}" for i in range(11))}, "addresses", "at most 10"),
        ({"username": ""}, "username", "Enter a user name"),
        ({"authentication": "bearer"}, "token", "Enter a token"),
        ({"ca_bundle": "-----BEGIN"}, "ca_bundle", "PEM"),
        ({"address_pattern": "http://{name}"}, "address_pattern", "{address} or {id}"),
        ({"address_pattern": "http://{address}/{name}"}, "address_pattern", "braces"),
        ({"kind": "mesos"}, "kind", "Select a valid choice"),
    ],
)
def test_a_wrong_value_of_yarn_is_named(admin: Client, typed: dict[str, str], field: str, message: str) -> None:
    answer = admin.post("/discoveries/add/", YARN | typed)
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [field]
    assert message in str(answer.context["form"].errors[field])
    assert "the-password" not in answer.content.decode()


def test_a_stored_password_is_only_sent_to_the_servers_that_it_was_entered_for(admin: Client) -> None:
    admin.post("/discoveries/add/", YARN)
    path = f"/discoveries/{DiscoverySource.objects.get().pk}/edit/"
    kept = YARN | {"password": "", "addresses": RM}
    assert admin.post(path, kept).status_code == 302
    assert DiscoverySource.objects.get().password.reveal() == "the-password"
    answer = admin.post(path, kept | {"addresses": f"{RM},http://10.0.0.9:8088"})
    assert "Enter the secret again" in str(answer.context["form"].errors["password"])
    answer = admin.post(path, TYPED | {"kind": "kubernetes", "name": "hadoop"})
    assert "keeps its kind" in str(answer.context["form"].errors["kind"])


@pytest.fixture
def kubernetes() -> Iterator[PlayedKubernetes]:
    with PlayedKubernetes().serving() as api:
        yield api


@pytest.fixture
def yarn() -> Iterator[PlayedYarn]:
    with PlayedYarn().serving() as resource_manager:
        yield resource_manager


def found_by_test(client: Client, typed: dict[str, str], pk: int | None = None) -> str:
    path = "/discoveries/test/" if pk is None else f"/discoveries/{pk}/test/"
    return str(client.post(path, typed).content.decode())


def test_the_test_of_kubernetes_says_what_is_found_and_which_right_is_missing(
    admin: Client, kubernetes: PlayedKubernetes
) -> None:
    kubernetes.put("orders", namespace="prod")
    kubernetes.missing |= {played_kubernetes.SPARK}
    kubernetes.forbidden |= {("watch", played_kubernetes.SESSION_JOB), ("list", played_kubernetes.POD)}
    typed = TYPED | {"kubeconfig": kubernetes.kubeconfig, "namespaces": "prod,test", "label_selector": ""}
    page = found_by_test(admin, typed)
    assert re.search(r"FlinkDeployment</dt><dd>1 · <bdi>prod</bdi>\s*</dd>", page)
    assert "The account may not watch flinksessionjobs.flink.apache.org in the namespace prod." in page
    assert "The account may not list pods in the namespace test." in page
    assert "<dd>SparkApplication (Apache)</dd>" in page
    assert "partly readable" in page
    kubernetes.forbidden.clear()
    assert "partly readable" not in found_by_test(admin, typed)
    assert not DiscoverySource.objects.exists()
    wrong = found_by_test(admin, typed | {"kubeconfig": kubeconfig(kubernetes.url, token="another")})
    assert wrong.count("does not accept the credentials") == 1
    assert "Enter a kubeconfig" in found_by_test(admin, typed | {"kubeconfig": ""})


def test_the_test_of_kubernetes_names_the_missing_extra(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)
    page = found_by_test(admin, TYPED | {"kubeconfig": kubeconfig("http://127.0.0.1:9")})
    assert "uv pip install -r pyproject.toml --extra kubernetes" in page


def test_the_test_of_yarn_uses_the_stored_password(admin: Client, yarn: PlayedYarn) -> None:
    yarn.start()
    yarn.start(applicationType="SPARK", name="etl")
    yarn.authorization = basic("ann", "the-password")
    typed = YARN | {"addresses": yarn.url, "application_tags": ""}
    assert "Flink application</dt><dd>1" in found_by_test(admin, typed)
    assert "does not accept the credentials" in found_by_test(admin, typed | {"password": "wrong"})
    admin.post("/discoveries/add/", typed)
    pk = DiscoverySource.objects.get().pk
    assert "Spark application</dt><dd>1" in found_by_test(admin, typed | {"password": "", "queues": ""}, pk)
    yarn.hidden = True
    assert "YARN does not show this application to the account." in found_by_test(admin, typed, pk)
