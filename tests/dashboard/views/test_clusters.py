"""The pages of clusters: permissions, errors at fields, stored values and audit entries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from monitoring.engine import examination
from monitoring.engine.connection import bearer
from monitoring.engine.identity import Identity
from monitoring.models import AuditEntry, Authentication, Cluster, Discovery
from monitoring.secret import seal
from tests.certificates import Authority
from tests.dashboard import builders as make
from tests.monitoring.engine.flink_server import FlinkServer, running

TYPED = {
    "name": "prod",
    "discovery": "url",
    "authentication": "none",
    "poll_interval_s": "3",
    "request_limit_s": "60",
    "requests_at_once": "8",
    "savepoints_at_once": "4",
    "savepoint_jitter_s": "60",
    "labels": "",
}


@pytest.fixture
def flink() -> Iterator[FlinkServer]:
    with running() as server:
        yield server


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("alma", password="pw-alma-1"))
    return client


GUARDED = {
    "discovery": "zookeeper",
    "zookeeper_hosts": "127.0.0.1:1",
    "unanswered": "on",
    "zookeeper_authentication": "digest",
    "zookeeper_username": "waymark",
    "zookeeper_password": "let-me-in",
}


def typed(url: str, **fields: str) -> dict[str, str]:
    return TYPED | {"rest_url": url} | fields


def errors(response: Any) -> dict[str, list[str]]:
    return {name: [str(text) for text in texts] for name, texts in response.context["form"].errors.items()}


@pytest.mark.parametrize("name", ["cluster-add", "cluster-edit", "cluster-remove"])
def test_only_an_administrator_opens_the_forms(
    stranger: Client, viewer: Client, operator: Client, admin: Client, now: datetime, name: str
) -> None:
    cluster = make.make_cluster(now)
    url = reverse(name, args=[] if name == "cluster-add" else [cluster.pk])
    assert stranger.get(url).status_code == 302
    assert [client.get(url).status_code for client in (viewer, operator, admin)] == [403, 403, 200]
    assert [client.post(url).status_code for client in (viewer, operator)] == [403, 403]


@pytest.mark.parametrize("name", ["cluster-test", "cluster-watch", "cluster-same", "cluster-test-typed"])
def test_cluster_actions_need_an_administrator_and_post(
    operator: Client, admin: Client, now: datetime, name: str
) -> None:
    url = reverse(name, args=[make.make_cluster(now).pk])
    assert operator.post(url).status_code == 403
    assert admin.get(url).status_code == 405


def test_cluster_page_shows_no_secrets(viewer: Client, operator: Client, admin: Client, now: datetime) -> None:
    cluster = make.make_cluster(
        now, token="s3cret-t", password="s3cret-p", authentication="bearer", client_key="s3cret-k"
    )
    for client in (viewer, operator, admin):
        page = client.get(reverse("cluster", args=[cluster.pk])).content.decode()
        assert "bearer token" in page
        assert "s3cret" not in page
    assert "s3cret" not in admin.get(reverse("cluster-edit", args=[cluster.pk])).content.decode()


def test_a_cluster_that_answers_is_added_and_audited(admin: Client, flink: FlinkServer) -> None:
    flink.needs = {"Authorization": bearer("s3cret")}
    sent = typed(flink.url + "/", authentication="bearer", token="s3cret", labels="team=a")
    response = admin.post(reverse("cluster-add"), sent, follow=True)
    cluster = Cluster.objects.get()
    assert response.redirect_chain[-1][0] == reverse("cluster", args=[cluster.pk])
    assert "Waymark monitors prod: Flink REST API 2.3.0, jobs: 1 RUNNING." in response.content.decode()
    assert (cluster.rest_url, cluster.token.reveal(), cluster.labels) == (flink.url, "s3cret", {"team": "a"})
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.action, entry.details["now"]["token"]) == ("alma", "cluster.add", "set")
    assert "s3cret" not in json.dumps(entry.details)


def test_a_token_over_plain_http_causes_a_warning(admin: Client) -> None:
    sent = typed("http://no-such-host.invalid:8081", authentication="bearer", token="s3cret", unanswered="on")
    page = admin.post(reverse("cluster-add"), sent, follow=True).content.decode()
    assert "The token is sent to no-such-host.invalid without encryption." in page


@pytest.mark.parametrize(
    ("fields", "field", "expected"),
    [
        ({"rest_url": "flink:8081"}, "rest_url", "must begin with http"),
        ({"rest_url": "http://169.254.169.254"}, "rest_url", "the address at which clouds issue credentials"),
        ({"rest_url": "http://no-such-host.invalid"}, "rest_url", "does not resolve"),
        ({"rest_url": "http://127.0.0.1:1"}, "rest_url", "nothing listens there"),
        ({"rest_url": "http://no-such-job-manager:8081"}, "rest_url", "does not resolve"),
        ({"rest_url": "http://a/" + "x" * 500}, "rest_url", "at most 500 characters"),
        ({"rest_url": "http://127.0.0.1:1/?x=1"}, "rest_url", "cannot contain ? or #"),
        ({"name": ""}, "name", "required"),
        ({"discovery": "zookeeper"}, "zookeeper_hosts", "Enter at least one server"),
        ({"discovery": "zookeeper", "zookeeper_hosts": "zk:99999"}, "zookeeper_hosts", "'zk:99999' is not a server"),
        (
            {"discovery": "zookeeper", "zookeeper_hosts": "zk:2181", "zookeeper_root": "/a b"},
            "zookeeper_root",
            "is not a ZooKeeper path",
        ),
        (GUARDED | {"zookeeper_username": ""}, "zookeeper_username", "Enter a user name"),
        (GUARDED | {"zookeeper_username": "a:b"}, "zookeeper_username", "colon"),
        (GUARDED | {"zookeeper_password": ""}, "zookeeper_password", "Enter a password"),
        ({"authentication": "bearer"}, "token", "Enter a token"),
        ({"authentication": "bearer", "token": "a b"}, "token", "cannot contain spaces"),
        ({"authentication": "basic", "password": "x"}, "username", "Enter a user name"),
        ({"authentication": "basic", "username": "a:b", "password": "x"}, "username", "colon"),
        ({"authentication": "basic", "username": "a"}, "password", "Enter a password"),
        ({"ca_bundle": "hello"}, "ca_bundle", "not certificates in PEM format"),
        ({"client_key": "hello"}, "client_certificate", "one of them is missing"),
        ({"poll_interval_s": "0.2"}, "poll_interval_s", "number of seconds from 1 to 3600"),
        ({"poll_interval_s": "nan"}, "poll_interval_s", "number of seconds from 1 to 3600"),
        ({"request_limit_s": "fast"}, "request_limit_s", "number of seconds from 1 to 60"),
        ({"requests_at_once": "65"}, "requests_at_once", "from 1 to 64"),
        ({"savepoints_at_once": "0"}, "savepoints_at_once", "from 1 to 64"),
        ({"savepoint_jitter_s": "-1"}, "savepoint_jitter_s", "from 0 to 3600"),
        ({"labels": "team"}, "labels", "'team' is not a label. Write labels as key=value"),
    ],
)
def test_cluster_form_errors_appear_at_their_fields_and_keep_the_input(
    admin: Client, fields: dict[str, str], field: str, expected: str
) -> None:
    response = admin.post(reverse("cluster-add"), typed("http://127.0.0.1:1") | fields)
    assert response.status_code == 422
    assert expected in " ".join(errors(response).get(field, [])), errors(response)
    page = response.content.decode()
    assert f'id="id_{field}_error"' in page
    assert all(f'value="{value}"' in page for name, value in fields.items() if name in ("rest_url", "labels", "name"))
    assert not Cluster.objects.exists()
    assert not AuditEntry.objects.exists()


def test_server_errors_appear_at_the_field(admin: Client, flink: FlinkServer) -> None:
    flink.instead("/overview", "<html>")
    assert "a web page" in errors(admin.post(reverse("cluster-add"), typed(flink.url)))["rest_url"][0]
    flink.instead("/overview", "", 307, Location="https://elsewhere.example/")
    assert (
        "redirects to https://elsewhere" in errors(admin.post(reverse("cluster-add"), typed(flink.url)))["rest_url"][0]
    )
    flink.instead("/overview", "{}", 403)
    response = admin.post(reverse("cluster-add"), typed(flink.url))
    assert "needs a log-in" in errors(response)["authentication"][0]
    page = response.content.decode()
    assert 'aria-describedby="id_authentication_error"' in page
    assert 'id="id_authentication_error"' in page


def test_empty_form_has_the_default_intervals(admin: Client) -> None:
    page = admin.get(reverse("cluster-add")).content.decode()
    usual = {"poll_interval_s": "3", "requests_at_once": "8", "savepoints_at_once": "4", "savepoint_jitter_s": "60"}
    assert all(f'name="{name}" value="{value}"' in page for name, value in usual.items())


def test_unreachable_cluster_is_saved_explicitly(admin: Client) -> None:
    response = admin.post(reverse("cluster-add"), typed("http://127.0.0.1:1"))
    assert "Save without a connection" in response.content.decode()
    admin.post(reverse("cluster-add"), typed("http://127.0.0.1:1", unanswered="on"))
    assert Cluster.objects.get().rest_url == "http://127.0.0.1:1"


def test_invalid_cluster_is_never_saved(admin: Client, flink: FlinkServer) -> None:
    flink.instead("/overview", "<html>")
    response = admin.post(reverse("cluster-add"), typed(flink.url, unanswered="on"))
    assert response.status_code == 422
    assert "Save without a connection" not in response.content.decode()


def test_an_edit_keeps_the_secret_and_audits_before_and_after(admin: Client, flink: FlinkServer) -> None:
    flink.needs = {"Authorization": bearer("s3cret")}
    cluster = Cluster.objects.create(name="prod", rest_url=flink.url, authentication="bearer", token="s3cret")
    url = reverse("cluster-edit", args=[cluster.pk])
    assert "A value is stored. Leave the field empty to keep it." in admin.get(url).content.decode()
    admin.post(url, typed(flink.url, authentication="bearer", poll_interval_s="7"))
    cluster.refresh_from_db()
    assert (cluster.poll_interval_s, cluster.token.reveal(), cluster.next_poll_at) == (7, "s3cret", None)
    entry = AuditEntry.objects.get()
    assert entry.details == {
        "before": {"poll_interval_s": 3.0, "request_limit_s": 10.0},
        "now": {"poll_interval_s": 7.0, "request_limit_s": 60.0},
    }


def test_audit_says_only_that_a_secret_changed(admin: Client, flink: FlinkServer) -> None:
    cluster = Cluster.objects.create(
        name="prod", rest_url=flink.url, authentication="bearer", token="old", request_limit_s=60
    )
    admin.post(reverse("cluster-edit", args=[cluster.pk]), typed(flink.url, authentication="bearer", token="brand-new"))
    cluster.refresh_from_db()
    assert cluster.token.reveal() == "brand-new"
    assert AuditEntry.objects.get().details == {"before": {"token": "set"}, "now": {"token": "changed"}}


def test_changing_the_authentication_deletes_the_old_secret(admin: Client, flink: FlinkServer) -> None:
    cluster = Cluster.objects.create(name="prod", rest_url=flink.url, authentication="bearer", token="old")
    admin.post(reverse("cluster-edit", args=[cluster.pk]), typed(flink.url))
    cluster.refresh_from_db()
    assert (cluster.authentication, bool(cluster.token)) == (Authentication.NONE, False)


def test_a_stored_secret_is_not_sent_to_another_address(admin: Client, flink: FlinkServer) -> None:
    fields = {"authentication": "bearer", "token": "s3cret"}
    cluster = Cluster.objects.create(name="prod", rest_url="http://flink.internal:8081", **fields)
    for name in ("cluster-edit", "cluster-test-typed"):
        response = admin.post(reverse(name, args=[cluster.pk]), typed(flink.url, authentication="bearer"))
        assert "The address has changed. Enter the secret again" in response.content.decode()
    assert flink.asked == []
    flink.needs = {"Authorization": bearer("s3cret")}
    admin.post(reverse("cluster-edit", args=[cluster.pk]), typed(flink.url, authentication="bearer", token="s3cret"))
    cluster.refresh_from_db()
    assert cluster.rest_url == flink.url


def test_an_edit_that_changes_nothing_is_not_audited(admin: Client, flink: FlinkServer) -> None:
    cluster = Cluster.objects.create(name="prod", rest_url=flink.url, request_limit_s=60)
    response = admin.post(reverse("cluster-edit", args=[cluster.pk]), typed(flink.url), follow=True)
    assert "No change." in response.content.decode()
    assert not AuditEntry.objects.exists()


def test_the_test_button_of_the_form_tests_the_typed_values_without_saving(admin: Client, flink: FlinkServer) -> None:
    page = admin.post(reverse("cluster-test-new"), typed(flink.url)).content.decode()
    assert all(text in page for text in ("Apache Flink 2.3.0 is reachable", "25 checkpoints", "cluster-id /demo"))
    flink.instead("/overview", "<html>")
    page = admin.post(reverse("cluster-test-new"), typed(flink.url)).content.decode()
    assert "<b>Address:</b> A server answers there, but not with Flink&#x27;s REST API" in page
    assert not Cluster.objects.exists()


def test_the_test_button_of_the_page_tests_the_stored_values(admin: Client, flink: FlinkServer) -> None:
    flink.needs = {"Authorization": bearer("s3cret")}
    cluster = Cluster.objects.create(name="prod", rest_url=flink.url, authentication="bearer", token="s3cret")
    assert "is reachable" in admin.post(reverse("cluster-test", args=[cluster.pk])).content.decode()
    flink.needs = {"Authorization": bearer("other")}
    assert "does not accept this token" in admin.post(reverse("cluster-test", args=[cluster.pk])).content.decode()


def test_a_certificate_is_trusted_from_the_form(admin: Client, tmp_path: Any) -> None:
    authority = Authority()
    with running(authority.sign().server_context(tmp_path, clients=authority)) as flink:
        ours = authority.sign(("waymark",))
        sent = typed(flink.url, ca_bundle=authority.pem, client_certificate=ours.certificate, client_key=ours.key)
        admin.post(reverse("cluster-add"), sent)
        cluster = Cluster.objects.get()
        assert ours.key.strip() == cluster.client_key.reveal().replace("\r\n", "\n").strip()
        response = admin.post(reverse("cluster-add"), typed(flink.url, name="second"))
    assert "not trusted" in errors(response)["ca_bundle"][0]


def test_polling_is_disabled_with_a_reason_and_enabled_again(admin: Client, now: datetime) -> None:
    cluster = make.make_cluster(now, unreachable_since=now, last_error="gone")
    url = reverse("cluster-watch", args=[cluster.pk])
    assert admin.post(url, {"watched": "no"}).status_code == 422
    admin.post(url, {"watched": "no", "reason": "maintenance"})
    cluster.refresh_from_db()
    assert (cluster.enabled, cluster.disabled_reason, cluster.unreachable_since) == (False, "maintenance", None)
    assert "maintenance" in admin.get(reverse("clusters")).content.decode()
    assert admin.get(reverse("fleet")).context["fleet"].silent_clusters == []  # the cluster is not polled
    admin.post(url, {"watched": "yes"})
    cluster.refresh_from_db()
    assert (cluster.enabled, cluster.disabled_reason) == (True, "")
    assert sorted(AuditEntry.objects.values_list("action", "reason")) == [
        ("cluster.pause", "maintenance"),
        ("cluster.resume", ""),
    ]


def test_removing_a_cluster_keeps_the_history_of_its_jobs(admin: Client, now: datetime) -> None:
    cluster = make.make_cluster(now)
    job = make.make_job(cluster)
    url = reverse("cluster-remove", args=[cluster.pk])
    assert "the history of its 1 job" in admin.get(url).content.decode()
    assert admin.post(url, {"reason": ""}).status_code == 422
    admin.post(url, {"reason": "sold"})
    page = admin.get(reverse("clusters")).content.decode()
    assert "1 removed cluster, kept for the history of its jobs" in page
    assert admin.get(reverse("job", args=[job.pk])).status_code == 200
    assert reverse("job", args=[job.pk]) not in admin.get(reverse("fleet")).content.decode()


def test_name_of_a_removed_cluster_is_reported(admin: Client, now: datetime, flink: FlinkServer) -> None:
    make.make_cluster(now, "prod", archived_at=now, enabled=False)
    response = admin.post(reverse("cluster-add"), typed(flink.url))
    assert "A removed cluster has this name" in errors(response)["name"][0]


def test_another_cluster_at_the_address_is_shown_and_confirmed(admin: Client, viewer: Client, now: datetime) -> None:
    was = Identity("zookeeper", {"path": "/flink", "cluster-id": "/a"}, ("zk:2181",), "p1")
    found = Identity("zookeeper", {"path": "/flink", "cluster-id": "/b"}, ("zk:2181",), "p2")
    cluster = make.make_cluster(now, identity=was.as_row(), stranger=found.as_row())
    page = viewer.get(reverse("cluster", args=[cluster.pk])).content.decode()
    assert "The cluster identity changed." in page
    assert "Accept as the same cluster</button>" not in page
    admin.post(reverse("cluster-same", args=[cluster.pk]))
    cluster.refresh_from_db()
    assert (cluster.identity, cluster.stranger) == (json.loads(json.dumps(found.as_row())), None)
    assert AuditEntry.objects.get().details["now"] == "path /flink, cluster-id /b at zk:2181"


def test_zookeeper_password_is_encrypted_and_bound_to_its_ensemble(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "LIMIT_S", 0.2)  # no ensemble answers
    assert admin.post(reverse("cluster-add"), typed("", **GUARDED)).status_code == 302
    cluster = Cluster.objects.get()
    assert (cluster.zookeeper_username, cluster.zookeeper_password.reveal()) == ("waymark", "let-me-in")
    edit = reverse("cluster-edit", args=[cluster.pk])
    assert "let-me-in" not in admin.get(edit).content.decode()
    kept = typed("", **GUARDED) | {"zookeeper_password": ""}
    assert admin.post(edit, kept | {"zookeeper_tls": "on"}).status_code == 302
    cluster.refresh_from_db()
    assert (cluster.zookeeper_tls, cluster.zookeeper_password.reveal()) == (True, "let-me-in")
    elsewhere = admin.post(edit, kept | {"zookeeper_hosts": "127.0.0.1:2"})
    assert "Enter the secret again" in errors(elsewhere)["zookeeper_password"][0]
    assert admin.post(edit, kept | {"zookeeper_authentication": "none"}).status_code == 302
    cluster.refresh_from_db()
    assert (cluster.zookeeper_username, cluster.zookeeper_password.reveal()) == ("", "")
    assert "let-me-in" not in str(list(AuditEntry.objects.values_list("details", flat=True)))


def test_undecryptable_secret_is_reported(viewer: Client, now: datetime) -> None:
    cluster = make.make_cluster(now, authentication="bearer", token="s3cret")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE monitoring_cluster SET token = %s", [seal("x")[:-6] + "AAAAA="])
    assert "unreadable secret" in viewer.get(reverse("clusters")).content.decode()
    assert "Waymark cannot poll this cluster." in viewer.get(reverse("cluster", args=[cluster.pk])).content.decode()


def test_fifty_clusters_need_as_many_queries_as_one(viewer: Client, now: datetime) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert viewer.get(reverse("clusters")).status_code == 200
        return len(captured)

    make.make_job(make.make_cluster(now))
    viewer.get(reverse("clusters"))
    one = queries()
    for number in range(49):
        make.make_job(make.make_cluster(now, f"cluster-{number}", token="s3cret"))
    assert queries() == one


def test_cluster_list_has_a_summary_and_shows_problems_first(viewer: Client, now: datetime) -> None:
    for name in ("a", "b"):
        make.make_cluster(now, name, next_poll_at=now)
    make.make_cluster(now, "silent", unreachable_since=now)
    make.make_cluster(now, "off", enabled=False)
    page = viewer.get(reverse("clusters")).content.decode()
    assert "2 reachable, 1 unreachable, 1 not monitored." in page
    assert page.index("http://silent.") < page.index("http://a.") < page.index("http://off.")


def test_without_clusters_the_page_names_the_next_step(viewer: Client, admin: Client) -> None:
    assert "An administrator can add a cluster here." in viewer.get(reverse("clusters")).content.decode()
    assert reverse("cluster-add") in admin.get(reverse("clusters")).content.decode()


@pytest.mark.parametrize(
    ("root", "cluster_id", "path"),
    [("/flink", "demo", "/flink/demo"), ("/flink/", "/demo", "/flink/demo"), ("/", "/", "/")],
)
def test_the_page_shows_the_zookeeper_path_that_is_read(admin: Client, root: str, cluster_id: str, path: str) -> None:
    found = {"zookeeper_hosts": "zk:2181", "zookeeper_root": root, "zookeeper_cluster_id": cluster_id}
    cluster = Cluster.objects.create(name="prod", discovery=Discovery.ZOOKEEPER, **found)
    assert f'<dd class="path">{path}</dd>' in admin.get(reverse("cluster", args=[cluster.pk])).content.decode()
