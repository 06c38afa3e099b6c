"""Clusters that Waymark finds in YARN: added, redeployed, ended and archived."""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta

import pytest
from django.utils import timezone

from monitoring.discovery.yarn import polling
from monitoring.discovery.yarn.api import ResourceManagers
from monitoring.discovery.yarn.applications import FLINK, SPARK, assign
from monitoring.engine import registration
from monitoring.engine.connection import Connection, basic
from monitoring.engine.identity import Identity
from monitoring.models import Cluster, DiscoverySource, FoundResource, Job, WatchedKind
from monitoring.reasons.discoveries import DiscoveryReason
from monitoring.reasons.engines import EngineReason
from tests.monitoring.discovery.played_yarn import PlayedYarn

pytestmark = pytest.mark.django_db(transaction=True)
CRASH = (
    "Application application_1_1 failed 2 times due to AM Container exited with exitCode: 1\n"
    "Caused by: java.lang.OutOfMemoryError: Java heap space\n"
)


def one() -> Cluster:
    return Cluster.objects.get()


def row(name: str = "orders") -> FoundResource:
    return FoundResource.objects.get(name=name)


def age(time: timedelta) -> None:
    """Let the rows be older."""
    for each in FoundResource.objects.all():
        FoundResource.objects.filter(pk=each.pk).update(changed_at=each.changed_at - time)


def test_a_running_application_is_a_cluster_at_the_address_of_its_master(yarn, yarn_source, look):
    id_ = yarn.start("orders", applicationTags="team:payments,env=prod,critical")
    look()
    cluster = one()
    assert (cluster.name, cluster.rest_url) == ("root.prod/orders", "http://node1:40001")
    assert cluster.labels == {"team": "payments", "env": "prod", "queue": "root.prod", "user": "flink"}
    found = row()
    assert (found.kind, found.uid, found.problem) == (FLINK, id_, "")
    assert found.state == {"application": "RUNNING", "user": "flink", "started_at": "2023-11-14T22:13:21+00:00"}
    look()
    assert Cluster.objects.count() == 1, "polled again, nothing is added"
    assert all(query["deSelects"] == "resourceRequests" for query in yarn.queries)


def test_an_application_that_waits_has_no_cluster_until_it_runs(yarn, yarn_source, look):
    waiting = "Queue's AM resource limit exceeded."
    id_ = yarn.start(state="ACCEPTED", elapsedTime=10_000, diagnostics=waiting)
    look()
    assert not Cluster.objects.exists()
    assert row().problem == "", "each application waits for some seconds"
    yarn.apps[id_]["elapsedTime"] = 300_000
    look()
    assert row().problem_value == DiscoveryReason.YARN_TEXT(status="ACCEPTED", text=waiting)
    yarn.run(id_)
    look()
    assert one().rest_url == "http://node9:49000"


def test_a_redeployed_application_is_the_same_cluster(yarn, yarn_source, look):
    first = yarn.start()
    look()
    cluster = one()
    job = Job.objects.create(cluster=cluster, name="orders")
    Cluster.objects.update(identity={"kind": "name"}, token="kept")
    yarn.end(first)
    second = yarn.start(state="ACCEPTED")
    look()
    assert (row().uid, row().state["application"]) == (second, "ACCEPTED")
    yarn.run(second)
    look()
    redeployed = one()
    assert (redeployed.pk, redeployed.rest_url, redeployed.identity) == (cluster.pk, "http://node9:49000", None)
    assert redeployed.enabled
    assert Job.objects.get().pk == job.pk


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [("FINISHED", "FAILED", "FAILED"), ("FAILED", "FAILED", "FAILED"), ("KILLED", "KILLED", "KILLED")],
)
def test_a_failed_application_stays_for_a_day_with_its_reason(yarn, yarn_source, look, state, status, expected):
    id_ = yarn.start()
    look()
    Job.objects.create(cluster=one(), name="orders")
    yarn.end(id_, state, status, CRASH)
    look()
    ended = row()
    assert (ended.state["application"], ended.state["final_status"], ended.gone_at) == (state, status, None)
    assert ended.state["ended_at"] > ended.state["started_at"]
    text = "Application application_1_1 failed 2 times due to AM Container exited with exitCode: 1: Java heap space"
    assert ended.problem_value.args["status"] == expected
    assert ended.problem_value.args["text"].startswith(text[:60])
    assert one().enabled
    age(timedelta(hours=23))
    yarn.apps.clear()  # YARN forgets it early
    look()
    assert (row().gone_at, one().archived_at) == (None, None)
    age(timedelta(hours=2))
    look()
    assert row().gone_at is not None
    reason = DiscoveryReason.APPLICATION_GONE(deployment="root.prod/orders", source="hadoop")
    assert (one().enabled, one().disabled_reason_value) == (False, reason)


def test_an_application_that_succeeded_stays_for_minutes(yarn, yarn_source, look):
    id_ = yarn.start()
    look()
    Job.objects.create(cluster=one(), name="orders")
    yarn.end(id_)
    look()
    assert row().state["final_status"] == "SUCCEEDED"
    assert (row().problem, one().enabled) == ("", True)
    age(timedelta(minutes=11))
    look()
    assert one().archived_at is not None
    look()
    assert row().gone_at is not None, "YARN still lists it"
    yarn.start()
    look()
    assert (one().archived_at, one().enabled) == (None, True)


def test_a_redeployment_that_fails_at_once_brings_an_archived_cluster_back(yarn, yarn_source, look):
    first = yarn.start()
    look()
    Job.objects.create(cluster=one(), name="orders")
    yarn.end(first)
    look()
    age(timedelta(minutes=11))
    look()
    assert one().archived_at is not None
    yarn.end(yarn.start(state="ACCEPTED"), "FAILED", "FAILED", CRASH)
    look()
    assert one().archived_at is None
    assert row().problem_value.args["status"] == "FAILED"


def test_an_application_that_failed_before_it_was_seen_is_shown_without_a_cluster(yarn, yarn_source, look):
    yarn.end(yarn.start("orders"), "FAILED", "FAILED", CRASH)
    yarn.end(yarn.start("batch"))
    yarn.end(yarn.start("old"), "FAILED", "FAILED", CRASH)
    list(yarn.apps.values())[2]["finishedTime"] -= 25 * 3600 * 1000
    look()
    assert not Cluster.objects.exists()
    assert list(FoundResource.objects.values_list("name", flat=True)) == ["orders"]


def test_applications_with_one_name_do_not_share_a_cluster(yarn, yarn_source, look):
    first = yarn.start()
    second = yarn.start()
    look()
    names = {cluster.name: cluster.rest_url for cluster in Cluster.objects.all()}
    assert names == {"root.prod/orders": "http://node1:40001", f"root.prod/orders {second}": "http://node2:40002"}
    yarn.end(first, "FAILED", "FAILED")
    look()
    names = {cluster.name: cluster.rest_url for cluster in Cluster.objects.all()}
    assert names[f"root.prod/orders {second}"] == "http://node2:40002", "it keeps its cluster while it runs"
    assert row().uid == first
    third = yarn.start()
    look()
    assert Cluster.objects.count() == 2
    assert Cluster.objects.get(name="root.prod/orders").rest_url == "http://node3:40003"
    assert row().uid == third


def test_an_application_that_moves_to_another_queue_stays_the_same_cluster(yarn, yarn_source, look):
    id_ = yarn.start()
    look()
    yarn.apps[id_] |= {"queue": "root.fast"}
    look()
    assert one().name == "root.prod/orders"
    assert one().labels["queue"] == "root.fast"


def test_the_address_of_an_ended_application_is_free_for_another_one(yarn, yarn_source, look):
    first = yarn.start("orders")
    look()
    yarn.end(first, "FAILED", "FAILED")
    yarn.start("clicks", amRPCAddress="node1:40001")
    look()
    assert {cluster.name for cluster in Cluster.objects.filter(rest_url="http://node1:40001")} == {
        "root.prod/orders",
        "root.prod/clicks",
    }
    assert row("clicks").problem == ""


def test_no_identity_is_confirmed_for_an_address_that_may_have_another_owner(yarn, yarn_source, look):
    yarn.start()
    look()
    stranger = Identity("name", {"cluster-id": "another"}).as_row()
    Cluster.objects.update(stranger=stranger)
    look()
    assert one().stranger == stranger | {"servers": []}


def test_a_cluster_that_a_person_removed_is_added_again_when_it_is_redeployed(yarn, yarn_source, look):
    first = yarn.start()
    look()
    registration.remove(one(), actor="ann", reason="not ours", now=timezone.now())
    yarn.apps[first]["applicationTags"] = "a=b"
    look()
    assert not Cluster.objects.exists()
    yarn.end(first)
    second = yarn.start(state="ACCEPTED")
    look()
    yarn.run(second)
    look()
    assert one().name == "root.prod/orders"


def test_an_application_that_is_no_longer_listed_is_archived_and_comes_back(yarn, yarn_source, look):
    id_ = yarn.start()
    look()
    Job.objects.create(cluster=one(), name="orders")
    app = yarn.apps.pop(id_)
    look()
    assert one().archived_at is not None
    yarn.apps[id_] = app
    look()
    assert one().archived_at is None


def test_a_poll_does_not_read_all_applications_that_are_gone(yarn, yarn_source, look, monkeypatch):
    """Many programs have names with a time, so each start leaves a row for good."""
    ids = [yarn.start(f"report-{number}") for number in range(20)]
    look()
    for id_ in ids:
        del yarn.apps[id_]
    look()
    yarn.start("orders")
    read = []
    monkeypatch.setattr(polling, "assign", lambda selected, known: read.extend(known) or assign(selected, known))
    look()
    look()
    assert [each.key.name for each in read] == ["orders"]
    assert FoundResource.objects.exclude(gone_at=None).count() == 20


def test_a_redeployment_is_seen_although_yarn_has_forgotten_the_former_application(yarn, yarn_source, look):
    first = yarn.start()
    look()
    cluster = one()
    del yarn.apps[first]
    yarn.start()
    look()
    assert (one().pk, one().rest_url, one().archived_at) == (cluster.pk, "http://node2:40002", None)


def test_spark_applications_are_shown_without_a_cluster(yarn, yarn_source, look):
    id_ = yarn.start("etl", applicationType="SPARK")
    yarn.start("grep", applicationType="MAPREDUCE")
    yarn.end(yarn.start("nightly", applicationType="SPARK"), "FAILED", "FAILED")
    look()
    assert not Cluster.objects.exists()
    assert list(FoundResource.objects.values_list("kind", "name")) == [(SPARK, "etl")]
    yarn.end(id_, "FINISHED", "FAILED", "User class threw exception: java.lang.IllegalStateException: no input")
    look()
    assert row("etl").state["final_status"] == "FAILED"
    assert "no input" in row("etl").problem


def test_queues_users_and_tags_select(yarn, yarn_source, look):
    yarn.start("a", queue="root.prod.payments", user="ann", applicationTags="watch")
    yarn.start("b", queue="root.prod.orders", user="bob", applicationTags="watch")
    yarn.start("c", queue="root.test", user="ann", applicationTags="watch")
    yarn.start("d", queue="root.prod.orders", user="ann", applicationTags="other")
    for selected, names in (
        ({"queues": "root.prod"}, "abd"),
        ({"queues": "orders,root.test"}, "bcd"),
        ({"queues": "root.prod", "users": "ann"}, "ad"),
        ({"queues": "root.prod", "users": "ann", "application_tags": "watch,more"}, "a"),
    ):
        DiscoverySource.objects.update(**{"queues": "", "users": "", "application_tags": ""} | selected)
        look()
        assert DiscoverySource.objects.get().last_error == ""
        found = FoundResource.objects.filter(gone_at=None)
        assert set(found.values_list("name", flat=True)) == set(names)
    assert Cluster.objects.count() == 1


def test_the_address_pattern_replaces_the_address(yarn, yarn_source, look):
    DiscoverySource.objects.update(address_pattern="https://knox.example.com/yarn/proxy/{id}")
    id_ = yarn.start(amRPCAddress="")
    look()
    assert one().rest_url == f"https://knox.example.com/yarn/proxy/{id_}"


def test_the_active_resource_manager_is_found_among_several(yarn, yarn_source, look):
    yarn.start()
    with PlayedYarn(standby=yarn.url).serving() as standby, PlayedYarn(standby="none").serving() as other:
        DiscoverySource.objects.update(addresses=f"http://127.0.0.1:9,{standby.url},{other.url},{yarn.url}")
        look()
        assert one().name == "root.prod/orders"
        yarn.standby, standby.standby, standby.apps = standby.url, "", yarn.apps
        yarn.start("clicks")
        look()
        assert Cluster.objects.count() == 2
        standby.standby = "none"
        look()
        assert source_error() == EngineReason.NOT_LISTENING(url="http://127.0.0.1:9")
        DiscoverySource.objects.update(addresses=other.url)
        look()
        assert source_error() == DiscoveryReason.NONE_ACTIVE(url=other.url)
        DiscoverySource.objects.update(addresses=yarn.url)
        look()
        assert source_error() == DiscoveryReason.STANDBY(url=yarn.url, active=standby.url)
    assert Cluster.objects.filter(archived_at=None).count() == 2, "what was found stays"


def source_error() -> object:
    return DiscoverySource.objects.get().last_error_value


async def test_a_round_that_is_canceled_closes_the_connections_to_every_resource_manager(yarn):
    """It may be canceled while it waits for the end of the first connection."""

    async def canceled_at_its_end(connections: list[Connection]) -> None:
        async with ResourceManagers(connections) as client:
            await client.live("", 10)
            asyncio.current_task().cancel()

    with PlayedYarn(standby=yarn.url).serving() as other:
        with pytest.raises(asyncio.CancelledError):
            await canceled_at_its_end([Connection(other.url), Connection(yarn.url)])
        gc.collect()  # pytest reports the warning of a session that is not closed as a failure


def test_credentials_are_sent_and_wrong_ones_are_named(yarn, yarn_source, look):
    yarn.start()
    yarn.authorization = basic("ann", "secret")
    look()
    assert source_error() == DiscoveryReason.LOG_IN_REFUSED(url=yarn.url)
    DiscoverySource.objects.update(authentication="basic", username="ann", password="secret")
    look()
    assert (source_error(), one().name) == (None, "root.prod/orders")
    yarn.kerberos = True
    look()
    assert source_error() == DiscoveryReason.KERBEROS(url=yarn.url)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((200, b"<html>hello</html>"), "is not JSON"),
        ((200, b'{"nodes": []}'), "is not a list of YARN applications"),
        ((200, b'{"apps": {"app": 7}}'), "is not a list of YARN applications"),
        ((403, b'{"RemoteException": {"message": "User ann is not allowed"}}'), "User ann is not allowed"),
        ((500, b"\xff\xfe"), "HTTP 500"),
    ],
)
def test_a_wrong_answer_is_named_and_what_was_found_stays(yarn, yarn_source, look, answer, expected):
    yarn.start()
    look()
    yarn.answer = answer
    look()
    assert expected in DiscoverySource.objects.get().last_error
    assert one().enabled


def test_an_answer_without_applications_is_not_an_error(yarn, yarn_source, look):
    for content in (b'{"apps": null}', b'{"apps": {}}', b'{"apps": ""}'):
        yarn.answer = (200, content)
        look()
        assert source_error() is None


def test_an_answer_that_is_too_large_is_named(yarn, yarn_source, look, monkeypatch):
    monkeypatch.setattr("monitoring.discovery.yarn.api._LARGEST", 2000)
    for number in range(10):
        yarn.start(f"job-{number}")
    look()
    assert source_error().code is EngineReason.TOO_LARGE


def test_more_applications_than_can_be_read_are_named_and_the_others_are_read(yarn, yarn_source, look, monkeypatch):
    monkeypatch.setattr("monitoring.discovery.yarn.polling.MOST", 5)
    ids = [yarn.start(f"job-{number}") for number in range(8)]
    look()
    assert WatchedKind.objects.get().problem_value.code is DiscoveryReason.TOO_MANY
    assert Cluster.objects.filter(archived_at=None).count() >= 5
    for id_ in ids[:6]:
        del yarn.apps[id_]
    look()
    assert WatchedKind.objects.get().problem == ""
    assert Cluster.objects.filter(archived_at=None).count() == 2


def test_foreign_values_are_refused_one_by_one(yarn, yarn_source, look):
    yarn.start("<script>alert(1)</script>\n\x00" + "x" * 300, queue="root.<b>")
    yarn.start("good", diagnostics=7, applicationTags="<b>=1,ok=1,a b=c", user=None, startedTime="soon")
    yarn.start("elsewhere", amRPCAddress="node1:80/../../@evil")
    yarn.apps["garbage"] = {"state": "RUNNING", "applicationType": "SPARK", "finishedTime": 0, "id": "<b>"}
    look()
    long = Cluster.objects.get(name__startswith="root.<b>/<script>")
    assert len(long.name) == 100
    assert Cluster.objects.get(name="root.prod/good").labels == {"ok": "1", "queue": "root.prod"}
    assert row("elsewhere").problem_value == DiscoveryReason.NO_MASTER_ADDRESS()
    problem = WatchedKind.objects.get().problem_value
    assert problem == DiscoveryReason.UNREADABLE(count=1, resource="applications.yarn", name="<b>")


def test_an_account_without_the_right_to_view_is_named(yarn, yarn_source, look):
    yarn.hidden = True
    yarn.start()
    look()
    assert not Cluster.objects.exists()
    assert row().problem_value == DiscoveryReason.NOT_VISIBLE()


def test_a_resource_manager_that_hangs_does_not_hold_another_source(yarn, yarn_source, look):
    from monitoring.discovery.rounds import Rounds
    from tests.waiting import eventually

    with PlayedYarn(silent=True).serving() as hanging:
        DiscoverySource.objects.create(name="hanging", kind="yarn", addresses=hanging.url)
        yarn.start()
        rounds = Rounds(0.0)
        rounds.start_due(lambda report: None, lambda name, error: None)
        eventually("the other source is read", lambda: Cluster.objects.exists())
        eventually("the hanging one is asked", lambda: hanging.queries)
        rounds.end()
        rounds.join()
        assert DiscoverySource.objects.get(name="hanging").claimed_by == "", "released at the end of the worker"
