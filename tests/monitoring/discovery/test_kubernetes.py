"""Clusters that Waymark finds in Kubernetes: added, changed, archived and restored."""

from __future__ import annotations

import sys
import threading
from functools import partial

import pytest
from django.db import connection, transaction
from django.utils import timezone

from dashboard.queries.discoveries import read_sources, resources_of
from monitoring.alerts.fleet import platform_problems
from monitoring.alerts.rule_facts import Interval
from monitoring.discovery.examination import examine
from monitoring.engine import registration
from monitoring.models import Cluster, DiscoverySource, FoundResource, Job, WatchedKind
from monitoring.reasons.discoveries import DiscoveryReason
from tests.monitoring.conftest import NOW
from tests.monitoring.discovery import played_kubernetes as played
from tests.monitoring.discovery.played_kubernetes import PlayedKubernetes
from tests.monitoring.locks import waiting_for_locks
from tests.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)
RUNNING = {
    "lifecycleState": "STABLE",
    "jobManagerDeploymentStatus": "READY",
    "jobStatus": {"state": "RUNNING", "jobId": "ab" * 16, "jobName": "orders", "startTime": "1790000000500"},
}


def one() -> Cluster:
    return Cluster.objects.get()


def cluster_names() -> set[str]:
    return set(Cluster.objects.values_list("name", flat=True))


def test_two_hundred_deployments_become_two_hundred_clusters(kubernetes, source, look):
    for number in range(200):
        kubernetes.put(f"job-{number}", labels={"team": "payments", "n": str(number)}, status=RUNNING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("monitoring.kubernetes.api.PAGE", 64)
        look()
    assert Cluster.objects.count() == 200
    cluster = Cluster.objects.get(name="prod/job-7")
    assert cluster.rest_url == "http://job-7-rest.prod:8081"
    assert cluster.labels == {"team": "payments", "n": "7"}
    row = cluster.found_resources.get()
    assert row.state == {
        "lifecycle": "STABLE", "manager": "READY", "job": "RUNNING", "job_id": "ab" * 16, "job_name": "orders",
        "started_at": "2026-09-21T14:13:20.500000+00:00",
    }  # fmt: skip
    look()
    assert Cluster.objects.count() == 200, "read again, nothing is added"


def test_the_test_of_a_source_names_the_rights_that_restarts_need(kubernetes, source):
    kubernetes.put("orders", status=RUNNING)
    kubernetes.forbidden = {("patch", played.FLINK), ("delete", played.SNAPSHOT)}
    assert {found.problem for found in examine(source)} == {""}
    source.may_change_resources = True
    problems = {found.kind: found.problem for found in examine(source) if found.problem}
    everywhere = DiscoveryReason.IN_ALL_NAMESPACES()
    assert problems == {
        kind: DiscoveryReason.FORBIDDEN(verb=verb, resource=kind, where=everywhere)
        for verb, kind in kubernetes.forbidden
    }


def test_warnings_of_the_operator_are_shown_with_their_job(kubernetes, source, look, watch, now):
    kubernetes.put("orders", status=RUNNING)
    kubernetes.put("nightly", played.SESSION_JOB, spec={"deploymentName": "orders"}, status=RUNNING)

    def event(name: str, of: str, type_: str = "Warning", api: str = "flink.apache.org/v1beta1") -> None:
        about = {"kind": of, "name": "nightly" if of == "FlinkSessionJob" else "orders", "apiVersion": api}
        parts = {"involvedObject": about, "reason": name.upper(), "message": f"{name} <b>happened</b>"}
        kubernetes.put(name, played.EVENT, **parts, type=type_)

    event("recovery", "FlinkDeployment")
    event("submit", "FlinkSessionJob")
    event("fine", "FlinkDeployment", "Normal")
    event("foreign", "Service", api="v1")
    look()
    event("late", "FlinkDeployment")
    watch()
    shown = {row.resource.name: row.state for row in resources_of(one(), now) if row.kind == "Event"}
    assert shown == {
        "recovery": "RECOVERY · recovery <b>happened</b>",
        "submit": "SUBMIT · submit <b>happened</b>",
        "late": "LATE · late <b>happened</b>",
    }
    assert [card.resources for card in read_sources()] == [2], "events are no resources of the source"


def test_a_problem_lasts_since_it_was_first_reported(kubernetes, source, look, watch):
    kubernetes.put("orders", status=RUNNING | {"error": "no quota"})
    look()
    FoundResource.objects.update(problem_since=NOW)
    kubernetes.put("orders", status=RUNNING | {"error": "still no quota"})
    watch()
    assert FoundResource.objects.get().problem == "The operator reports: still no quota"
    assert platform_problems() == {one().pk: [Interval(NOW, None)]}
    kubernetes.put("orders", status=RUNNING)
    watch()
    assert platform_problems() == {}


def test_a_problem_of_a_pod_is_one_of_its_cluster(kubernetes, source, look, watch):
    kubernetes.put("orders", status=RUNNING)
    labels = {"app": "orders", "component": "jobmanager"}
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff"}}}
    kubernetes.put("orders-abc", played.POD, labels=labels, status={"containerStatuses": [waiting]})
    look()
    pod = FoundResource.objects.get(name="orders-abc")
    assert platform_problems() == {one().pk: [Interval(pod.changed_at, None)]}
    kubernetes.delete("orders-abc", played.POD)
    watch()
    assert platform_problems() == {}


def test_a_worker_without_the_extra_keeps_what_was_found(kubernetes, source, look, monkeypatch):
    kubernetes.put("orders", status=RUNNING)
    look()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "kubernetes_asyncio", None)
        look()
    source.refresh_from_db()
    assert source.last_error_value == DiscoveryReason.EXTRA_MISSING()
    assert one().name == "prod/orders"
    look()
    source.refresh_from_db()
    assert source.last_error == ""


def test_separators_in_a_resource_do_not_end_the_watch(kubernetes, source, look, watch):
    look()
    kubernetes.put("orders", annotations={"note": "next line \x85, line \u2028, paragraph \u2029"}, status=RUNNING)
    watch()
    assert one().name == "prod/orders"
    assert kubernetes.requests["list", played.FLINK] == 1


def test_a_change_is_seen_by_the_watch_and_not_by_another_list(kubernetes, source, look, watch):
    kubernetes.put("orders")
    look()
    kubernetes.put("orders", labels={"team": "payments"})
    kubernetes.put("clicks")
    watch()
    assert {cluster.name: cluster.labels for cluster in Cluster.objects.all()} == {
        "prod/orders": {"team": "payments"},
        "prod/clicks": {},
    }
    assert kubernetes.requests["list", played.FLINK] == 1


def test_a_cluster_whose_operator_reports_another_state_is_polled_at_once(kubernetes, source, look, watch):
    """It may report the end of the job, which matters only if the cluster does not answer."""
    kubernetes.put("orders", status=RUNNING)
    look()
    planned = timezone.now()
    Cluster.objects.update(next_poll_at=planned)
    kubernetes.put("orders", labels={"a": ""}, status=RUNNING)
    watch()
    kubernetes.put("orders", labels={"a": ""}, status=RUNNING | {"error": "pending"})
    Cluster.objects.update(next_poll_at=planned)
    watch()
    assert one().next_poll_at == planned
    kubernetes.put("orders", labels={"a": ""}, status={"jobStatus": {"state": "FAILED", "jobId": "ab" * 16}})
    watch()
    assert one().next_poll_at is None


def test_a_deleted_deployment_is_archived_with_its_history_and_restored_as_the_same_cluster(
    kubernetes, source, look, watch
):
    kubernetes.put("orders", labels={"team": "payments"})
    look()
    cluster = one()
    job = Job.objects.create(cluster=cluster, name="orders")
    Cluster.objects.update(token="kept", identity={"kind": "name"}, stranger={"kind": "name"})
    kubernetes.delete("orders")
    watch()
    archived = one()
    assert archived.archived_at is not None
    assert not archived.enabled
    assert archived.disabled_reason_value == DiscoveryReason.DEPLOYMENT_GONE(deployment="prod/orders", source="east")
    kubernetes.put("orders", labels={"team": "checkout"})
    watch()
    restored = one()
    assert (restored.pk, restored.archived_at, restored.enabled) == (cluster.pk, None, True)
    assert restored.labels == {"team": "checkout"}
    assert restored.token.reveal() == "kept", "a person has entered it"
    assert (restored.identity, restored.stranger) == (None, None), "another process answers, and nobody must confirm it"
    assert Job.objects.get().pk == job.pk


def test_a_deleted_deployment_without_jobs_is_removed(kubernetes, source, look, watch):
    kubernetes.put("orders")
    look()
    kubernetes.delete("orders")
    watch()
    assert not Cluster.objects.exists()
    kubernetes.put("orders")
    watch()
    assert one().enabled


def test_a_cluster_whose_first_job_is_found_while_it_is_removed_is_archived(kubernetes, source, look, watch):
    kubernetes.put("orders", status=RUNNING)
    look()
    kubernetes.delete("orders")

    def watch_again() -> None:
        watch()
        connection.close()

    thread = threading.Thread(target=watch_again)
    with transaction.atomic():
        cluster = Cluster.objects.select_for_update().get()  # as a poll does
        thread.start()
        eventually("the removal waits", waiting_for_locks)
        Job.objects.create(cluster=cluster, name="orders")
    thread.join()
    assert one().archived_at is not None


def test_what_a_person_has_changed_stays(kubernetes, source, look):
    kubernetes.put("orders", labels={"team": "payments"})
    look()
    cluster = one()
    cluster.name, cluster.rest_url, cluster.poll_interval_s = "Orders", "https://flink.example.com/orders", 9
    registration.change(cluster, "ann")
    DiscoverySource.objects.update(address_pattern="http://{name}.{namespace}.example.com")
    FoundResource.objects.update(version="")
    WatchedKind.objects.update(version="")
    kubernetes.put("orders", labels={"team": "checkout"})
    look()
    cluster.refresh_from_db()
    assert (cluster.name, cluster.poll_interval_s) == ("Orders", 9)
    assert cluster.rest_url == "https://flink.example.com/orders"
    assert cluster.labels == {"team": "checkout"}, "nobody has changed the labels"


def test_a_cluster_that_a_person_removed_is_not_added_again(kubernetes, source, look, watch):
    kubernetes.put("orders")
    look()
    registration.remove(one(), actor="ann", reason="not ours", now=timezone.now())
    kubernetes.put("orders", labels={"a": "b"})
    watch()
    assert not Cluster.objects.exists()


def test_a_cluster_with_the_same_address_is_adopted(kubernetes, source, look):
    Cluster.objects.create(name="by hand", rest_url="http://orders-rest.prod:8081", labels={"mine": "yes"})
    kubernetes.put("orders", labels={"team": "payments"})
    look()
    assert one().name == "by hand"
    assert one().labels == {"mine": "yes"}
    assert one().found_resources.count() == 1


def test_two_deployments_never_share_a_cluster(kubernetes, source, look):
    DiscoverySource.objects.update(address_pattern="http://flink.example.com:8081")
    kubernetes.put("a")
    kubernetes.put("b")
    look()
    assert Cluster.objects.count() == 1
    problem = FoundResource.objects.get(cluster=None).problem_value
    assert problem == DiscoveryReason.ADDRESS_TAKEN(cluster="prod/a", url="http://flink.example.com:8081")


def test_the_selector_and_the_namespaces_choose(kubernetes, source, look, watch):
    kubernetes.put("a", labels={"watch": "yes"}, namespace="one")
    kubernetes.put("b", namespace="one")
    kubernetes.put("c", labels={"watch": "yes"}, namespace="two")
    kubernetes.put("d", labels={"watch": "yes"}, namespace="three")
    DiscoverySource.objects.update(label_selector="watch=yes", namespaces="one,two")
    look()
    assert cluster_names() == {"one/a", "two/c"}
    kubernetes.put("a", labels={}, namespace="one")  # the watch reports it as deleted
    kubernetes.put("b", labels={"watch": "yes"}, namespace="one")
    watch()
    assert cluster_names() == {"one/b", "two/c"}
    DiscoverySource.objects.update(namespaces="two")
    look()
    assert cluster_names() == {"two/c"}


def test_resources_of_other_kinds_are_found_but_do_not_become_clusters(kubernetes, source, look):
    kubernetes.put("session")
    kubernetes.put("job", played.SESSION_JOB, spec={"deploymentName": "session"}, status=RUNNING)
    kubernetes.put("snap", played.SNAPSHOT, spec={"jobReference": {"kind": "FlinkDeployment", "name": "session"}})
    kubernetes.put("etl", played.SPARK, status={"currentState": {"currentStateSummary": "RunningHealthy"}})
    failed = {"applicationState": {"state": "FAILED", "errorMessage": "driver container failed"}}
    kubernetes.put("etl", played.KUBEFLOW, status=failed)
    look()
    assert one().name == "prod/session"
    rows = {row.kind: row for row in FoundResource.objects.all()}
    assert rows[played.SESSION_JOB].deployment == rows[played.SNAPSHOT].deployment == "session"
    assert rows[played.SPARK].state == {"application": "RunningHealthy"}
    assert rows[played.KUBEFLOW].problem_value == DiscoveryReason.OPERATOR_ERROR(error="driver container failed")


def test_the_operators_error_is_its_message(kubernetes, source, look):
    error = '{"type":"org.apache.flink.X","message":"Could not pull the image","stackTrace":"at org…"}'
    kubernetes.put("orders", status={"error": error, "jobManagerDeploymentStatus": "ERROR"})
    look()
    problem = FoundResource.objects.get().problem_value
    assert problem == DiscoveryReason.OPERATOR_ERROR(error="Could not pull the image")


@pytest.mark.parametrize("status_410", [False, True])
def test_gone_versions_are_listed_again(kubernetes, source, look, status_410):
    kubernetes.put("a")
    kubernetes.put("b")
    look()
    kubernetes.delete("a")
    kubernetes.put("c")
    kubernetes.status_410 = status_410
    kubernetes.compact()
    look(meanwhile=partial(eventually, "the new list is applied", lambda: cluster_names() == {"prod/b", "prod/c"}))
    assert kubernetes.requests["list", played.FLINK] == 2


def test_a_watch_that_is_cut_continues_without_another_list(kubernetes, source, look):
    kubernetes.put("a")
    look()

    def cut_and_change() -> None:
        kubernetes.put("b")
        eventually("the watch is open", lambda: Cluster.objects.count() == 2)
        watches = kubernetes.requests["watch", played.FLINK]
        kubernetes.cut()
        eventually("the watch is opened again", lambda: kubernetes.requests["watch", played.FLINK] > watches)
        kubernetes.put("c")
        eventually("the new watch sends the change", lambda: Cluster.objects.count() == 3)

    look(meanwhile=cut_and_change)
    assert kubernetes.requests["list", played.FLINK] == 1


def test_bookmarks_advance_the_version_of_a_kind_without_changes(kubernetes, source, look, watch):
    look()
    for number in range(3):
        kubernetes.put(f"etl-{number}", played.SPARK)
    watch()
    assert {row.version for row in WatchedKind.objects.all()} == {str(kubernetes.version)}


def test_a_missing_operator_is_not_an_error_and_found_clusters_stay(kubernetes, source, look):
    kubernetes.put("a")
    kubernetes.missing |= {played.SPARK, played.KUBEFLOW}
    look()
    assert one().name == "prod/a"
    source.refresh_from_db()
    assert source.last_error == ""
    row = WatchedKind.objects.get(kind=played.SPARK)
    assert row.problem_value == DiscoveryReason.NOT_INSTALLED(resource=played.SPARK)
    kubernetes.missing.add(played.FLINK)
    WatchedKind.objects.update(version="")
    look()
    assert one().archived_at is None
    kubernetes.missing.clear()
    look()
    assert not WatchedKind.objects.exclude(problem="").exists()


def test_a_missing_right_is_named_and_the_rest_is_read(kubernetes, source, look, watch):
    DiscoverySource.objects.update(namespaces="prod")
    kubernetes.put("a")
    kubernetes.forbidden.add(("list", played.SESSION_JOB))
    kubernetes.forbidden.add(("watch", played.FLINK))
    look()  # all lists, so that the second round only watches
    kubernetes.put("b")
    watch()
    assert one().name == "prod/a"
    where = DiscoveryReason.IN_NAMESPACE(namespace="prod")
    for verb, kind in (("list", played.SESSION_JOB), ("watch", played.FLINK)):
        problem = WatchedKind.objects.get(kind=kind).problem_value
        assert problem == DiscoveryReason.FORBIDDEN(verb=verb, resource=kind, where=where)


def test_wrong_credentials_are_an_error_of_the_source(kubernetes, source, look):
    DiscoverySource.objects.update(kubeconfig=played.kubeconfig(kubernetes.url, token="another"))
    look()
    source.refresh_from_db()
    assert source.last_error_value == DiscoveryReason.LOG_IN_REFUSED(url=kubernetes.url)
    assert source.next_look_at > timezone.now()


def test_foreign_resources_are_refused(kubernetes, source, look):
    kubernetes.put("good")
    kubernetes.put("<script>alert(1)</script>")
    kubernetes.put("nameless", namespace="")
    kubernetes.objects[played.FLINK, "prod", "garbage"] = {"metadata": {"labels": {}, "name": 7, "namespace": "prod"}}
    kubernetes.put("odd", spec=[1], status="text", labels={"a b": "c", "x": "y\n", "ok": "1", "n": 5})
    look()
    assert {cluster.name: cluster.labels for cluster in Cluster.objects.all()} == {
        "prod/good": {},
        "prod/odd": {"ok": "1"},
    }
    problem = WatchedKind.objects.get(kind=played.FLINK).problem_value
    assert problem == DiscoveryReason.UNREADABLE(count=3, resource=played.FLINK, name="<script>alert(1)</script>")


def test_a_server_that_hangs_holds_neither_the_tick_nor_another_source(kubernetes, source, look):
    with PlayedKubernetes(silent=True).serving() as hanging:
        DiscoverySource.objects.create(name="hanging", kubeconfig=hanging.kubeconfig)
        kubernetes.put("a")
        from monitoring.discovery.rounds import Rounds

        rounds = Rounds(0.0)
        rounds.start_due(lambda report: None, lambda name, error: None)
        eventually("the other source is read", lambda: Cluster.objects.exists())
        eventually("the hanging one is asked", lambda: hanging.requests)
        assert DiscoverySource.objects.get(name="hanging").claimed_by
        rounds.end()
        rounds.join()
        assert DiscoverySource.objects.get(name="hanging").claimed_by == "", "released at the end of the worker"


PULL = {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]}
KILLED = {"containerStatuses": [{"state": {"running": {}}, "lastState": {"terminated": {"reason": "OOMKilled"}}}]}
EVICTED = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
PENDING = {
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]
}


def test_the_troubles_of_pods_belong_to_their_deployment(kubernetes, source, look, watch):
    kubernetes.put("orders")
    for name, status in {"a": PULL, "b": KILLED, "c": EVICTED, "d": PENDING, "e": {"phase": "Running"}}.items():
        labels = {"app": "orders", "component": "taskmanager"}
        kubernetes.put(f"orders-{name}", played.POD, labels=labels, status=status)
    kubernetes.put("web", played.POD, labels={"app": "web"}, status=PULL)
    look()
    pods = FoundResource.objects.filter(kind=played.POD)
    assert {pod.deployment for pod in pods} == {"orders"}
    assert {pod.name: str(pod.problem_value) for pod in pods} == {
        "orders-a": "Kubernetes reports ImagePullBackOff for the pod: no such image",
        "orders-b": "Kubernetes reports OOMKilled for the pod.",
        "orders-c": "Kubernetes reports Evicted for the pod: The node was low on resource: memory.",
        "orders-d": "Kubernetes reports Unschedulable for the pod: 0/3 nodes",
    }
    kubernetes.put("orders-a", played.POD, status={"phase": "Running"})
    kubernetes.delete("orders-b", played.POD)
    watch()
    assert set(pods.filter(gone_at=None).values_list("name", flat=True)) == {"orders-c", "orders-d"}
    assert set(pods.exclude(gone_at=None).values_list("name", flat=True)) == {"orders-a", "orders-b"}
