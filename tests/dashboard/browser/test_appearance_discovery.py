"""The pages about found clusters and watched directories in all sizes and themes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import Page, expect

from monitoring.discovery.yarn import applications
from monitoring.kubernetes import kinds
from monitoring.models import Cluster, Discovery, DiscoverySource, FoundResource, SourceKind, WatchedKind
from monitoring.reasons.columns import columns
from monitoring.reasons.discoveries import DiscoveryReason
from tests.dashboard import builders as make
from tests.dashboard.browser.appearance import check_pages
from tests.dashboard.browser.conftest import Reader
from tests.monitoring.discovery import played_kubernetes
from tests.monitoring.discovery.played_kubernetes import PlayedKubernetes

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def source(db: None, now: datetime) -> DiscoverySource:
    """Return a source with healthy and broken deployments, a Spark application, and a missing right."""
    source = DiscoverySource.objects.create(name="east", kubeconfig="x", namespaces="payments,orders")
    DiscoverySource.objects.create(name="in-cluster", in_cluster=True, enabled=False)
    times = {"found_at": now, "changed_at": now, "namespace": "payments"}
    states = (("STABLE", "RUNNING"), ("FAILED", "FAILED"), ("DEPLOYED", "RECONCILING"))
    error = columns("problem", DiscoveryReason.OPERATOR_ERROR(error="Back-off pulling image registry/orders:1.20 " * 4))
    for number, (lifecycle, job) in enumerate(states):
        name = f"orders-with-a-rather-long-name-{number}"
        FoundResource.objects.create(
            source=source,
            kind=kinds.FLINK_DEPLOYMENT.key,
            name=name,
            cluster=make.make_cluster(now, f"payments/{name}"),
            state={"lifecycle": lifecycle, "job": job},
            **(error if number == 1 else {}),
            **times,
        )
    FoundResource.objects.create(source=source, kind=kinds.SPARK_OF_APACHE.key, name="etl", **times)
    where = DiscoveryReason.IN_NAMESPACE(namespace="orders")
    forbidden = DiscoveryReason.FORBIDDEN(verb="list", resource="flinkdeployments.flink.apache.org", where=where)
    WatchedKind.objects.create(
        source=source, kind=kinds.FLINK_DEPLOYMENT.key, namespace="orders", **columns("problem", forbidden)
    )
    return source


@pytest.fixture
def yarn(db: None, now: datetime) -> DiscoverySource:
    """Return a source of YARN with an application that runs, one that failed, and one of Spark."""
    source = DiscoverySource.objects.create(
        name="hadoop",
        kind=SourceKind.YARN,
        addresses="http://rm1.example.com:8088,http://rm2.example.com:8088",
        authentication="basic",
        username="waymark",
        password="secret",
        queues="root.prod,root.payments",
        address_pattern=SourceKind.YARN.usual_pattern,
        last_answer_at=now,
    )
    text = "Application failed 2 times due to AM Container for appattempt_1_000002 exited with exitCode: 1"
    failed = columns("problem", DiscoveryReason.YARN_TEXT(status="FAILED", text=text))
    ended = {"application": "FINISHED", "final_status": "FAILED", "ended_at": now.isoformat()}
    for kind, name, state in (
        (applications.FLINK, "orders", {"application": "RUNNING"}),
        (applications.FLINK, "clicks", ended),
        (applications.SPARK, "etl", {"application": "ACCEPTED"}),
    ):
        FoundResource.objects.create(
            source=source,
            kind=kind,
            namespace="root.prod",
            name=name,
            uid="application_1700000000000_0001",
            cluster=make.make_cluster(now, f"root.prod/{name}") if kind == applications.FLINK else None,
            state=state,
            **(failed if name == "clicks" else {}),
            found_at=now,
            changed_at=now,
        )
    return source


@pytest.fixture
def kubernetes() -> Iterator[PlayedKubernetes]:
    with PlayedKubernetes().serving() as api:
        yield api


def test_pages_of_yarn(read_as: Callable[..., Reader], yarn: DiscoverySource, kubernetes: PlayedKubernetes) -> None:
    kubernetes.put("orders", namespace="payments")
    kubernetes.missing |= {played_kubernetes.KUBEFLOW}
    kubernetes.forbidden |= {("watch", played_kubernetes.SESSION_JOB)}
    admin = User.objects.create_superuser("anna", "anna@example.org", "pw-anna-long")
    add = reverse("discovery-add")
    pages = {
        "yarn": reverse("discovery", args=[yarn.pk]),
        "yarn-form": reverse("discovery-edit", args=[yarn.pk]),
        "yarn-cluster": reverse("cluster", args=[Cluster.objects.get(name="root.prod/clicks").pk]),
        "tested-form": add,
    }

    def settle(page: Page, name: str) -> None:
        if name != "tested-form":
            return
        assert not page.get_by_label("Queues").is_visible()
        page.get_by_label("YARN").check()
        assert page.get_by_label("Queues").is_visible()
        assert not page.get_by_label("Namespaces").is_visible()
        page.get_by_label("Kubernetes").check()
        page.get_by_label("Name", exact=True).fill("east")
        page.get_by_label("Kubeconfig").fill(kubernetes.kubeconfig)
        page.get_by_role("button", name="Test the connection").click()
        expect(page.get_by_text("may not watch flinksessionjobs")).to_be_visible()

    check_pages(read_as(user=admin), pages, "discovery-", settle=settle)


def test_pages_of_found_clusters(read_as: Callable[..., Reader], source: DiscoverySource) -> None:
    admin = User.objects.create_superuser("anna", "anna@example.org", "pw-anna-long")
    broken = Cluster.objects.get(name__endswith="-1")
    Cluster.objects.create(
        name="lake", discovery=Discovery.DIRECTORY, rest_url="/data/checkpoints", savepoint_target="/data/savepoints"
    )
    pages = {
        "sources": reverse("discoveries"),
        "source": reverse("discovery", args=[source.pk]),
        "source-form": reverse("discovery-add"),
        "found-cluster": reverse("cluster", args=[broken.pk]),
        "clusters": reverse("clusters"),
        "directory-form": reverse("cluster-edit", args=[Cluster.objects.get(name="lake").pk]),
    }
    check_pages(read_as(user=admin), pages, "discovery-")


def test_pages_of_a_job_that_the_flink_operator_runs(
    read_as: Callable[..., Reader], source: DiscoverySource, kubernetes: PlayedKubernetes, now: datetime
) -> None:
    operator = User.objects.create_superuser("anna", "anna@example.org", "pw-anna-long")
    cluster = Cluster.objects.get(name__endswith="-0")
    job = make.make_job(cluster, "orders", launch=None)
    run = make.make_run(job, now)
    make.make_checkpoints(run, now)
    make.make_savepoint(run, now)
    arguments = ["--topic", "orders", "--db.password", "tiger"]
    program = {"jarURI": "local:///opt/flink/usrlib/orders.jar", "args": arguments, "parallelism": 4}
    spec = {"image": "registry.example.com/payments/orders:1.19-2", "job": program}
    kubernetes.put("orders-with-a-rather-long-name-0", namespace="payments", spec=spec)
    # With "x" as the kubeconfig, the program cannot be read.
    for name, may_change, kubeconfig in (("refused", False, "x"), ("allowed", True, kubernetes.kubeconfig)):
        source.may_change_resources, source.kubeconfig = may_change, kubeconfig
        source.save()
        resource = FoundResource.objects.get(name__endswith="-0")
        resource.deployment = resource.name
        resource.state |= {"job_id": run.engine_job_id, "upgrade_mode": "savepoint"}
        resource.save()
        event = {"event": "RecoverDeployment", "message": "Recovering lost deployment"}
        FoundResource.objects.update_or_create(
            source=source,
            kind=kinds.EVENT.key,
            name="event-1",
            namespace="payments",
            defaults={"deployment": resource.name, "state": event, "found_at": now, "changed_at": now},
        )
        pages = {
            f"restart-{name}": reverse("job-restart", args=[job.pk]),
            f"program-{name}": reverse("job-launch", args=[job.pk]),
            "job": reverse("job", args=[job.pk]),
            "configuration": reverse("job-configuration", args=[job.pk]),
        }
        check_pages(read_as(user=operator), pages, "operator-")
