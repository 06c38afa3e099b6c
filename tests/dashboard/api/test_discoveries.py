"""The API sets sources that find clusters, and lists what they have found. It never returns a kubeconfig."""

from __future__ import annotations

from datetime import datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from monitoring.models import DiscoverySource, FoundResource
from monitoring.reasons.columns import columns
from monitoring.reasons.discoveries import DiscoveryReason
from tests.monitoring.discovery.played_kubernetes import POD, SPARK, TOKEN, PlayedKubernetes, kubeconfig

pytestmark = pytest.mark.django_db
PATH = "/api/v1/discoveries"


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("anna"))
    return client


def send(client: Client, method: str, path: str, body: dict[str, object]) -> object:
    return getattr(client, method)(path, body, content_type="application/json")


def test_a_source_is_added_changed_listed_and_removed(admin: Client, now: datetime) -> None:
    body = {"name": "east", "kubeconfig": kubeconfig("https://10.0.0.1:6443"), "namespaces": "prod"}
    made = send(admin, "post", PATH, body)
    assert made.status_code == 201, made.content
    assert TOKEN not in made.content.decode()
    assert "kubeconfig" not in made.json()
    assert (made.json()["state"], made.json()["namespaces"]) == ("new", "prod")
    own = f"{PATH}/{made.json()['id']}"
    assert send(admin, "patch", own, {"label_selector": "a=b"}).json()["label_selector"] == "a=b"
    source = DiscoverySource.objects.get()
    assert source.kubeconfig.reveal() == body["kubeconfig"], "an empty kubeconfig keeps the stored one"
    problem = DiscoveryReason.OPERATOR_STATE(state="FAILED")
    FoundResource.objects.create(
        source=source, kind="k", namespace="prod", name="a", found_at=now, changed_at=now, **columns("problem", problem)
    )
    [found] = admin.get(f"{own}/resources").json()["items"]
    assert (found["name"], found["cluster_id"]) == ("a", None)
    assert found["problem_value"] == {"code": "discoveries.operator-state", "args": {"state": "FAILED"}}
    assert [each["resources"] for each in admin.get(PATH).json()["items"]] == [1]
    assert admin.delete(own).status_code == 204
    assert not DiscoverySource.objects.exists()


def test_a_kubeconfig_that_runs_a_program_is_refused_without_being_repeated(admin: Client) -> None:
    body = {"name": "east", "kubeconfig": kubeconfig("https://10.0.0.1", exec="secret-program")}
    answer = send(admin, "post", PATH, body)
    assert answer.status_code == 422
    assert "user.exec" in answer.content.decode()
    assert "secret-program" not in answer.content.decode()


def test_a_source_of_yarn_is_added_and_keeps_its_kind(admin: Client) -> None:
    body = {"name": "hadoop", "kind": "yarn", "addresses": "http://10.0.0.1:8088", "queues": "root.prod"}
    secret = {"authentication": "bearer", "token": "the-token"}
    made = send(admin, "post", PATH, body | secret)
    assert made.status_code == 201, made.content
    assert "the-token" not in made.content.decode()
    expected = body | {"authentication": "bearer", "address_pattern": "http://{address}"}
    assert {name: made.json()[name] for name in expected} == expected
    own = f"{PATH}/{made.json()['id']}"
    assert send(admin, "patch", own, {"users": "flink"}).json()["users"] == "flink"
    assert DiscoverySource.objects.get().token.reveal() == "the-token"
    answer = send(admin, "patch", own, {"kind": "kubernetes"})
    assert (answer.status_code, "keeps its kind" in answer.content.decode()) == (422, True)


def test_the_test_of_a_source_returns_what_is_found_and_which_right_is_missing(admin: Client) -> None:
    with PlayedKubernetes().serving() as kubernetes:
        kubernetes.put("orders", namespace="prod")
        kubernetes.missing |= {SPARK}
        kubernetes.forbidden |= {("list", POD)}
        source = DiscoverySource.objects.create(name="east", kubeconfig=kubernetes.kubeconfig, namespaces="prod")
        answer = send(admin, "post", f"{PATH}/{source.pk}/test", {}).json()
    assert (answer["answers"], answer["sentence"], answer["remarks"]) == (True, "", [])
    found = {each["kind"].partition(".")[0]: each for each in answer["found"]}
    orders = found["flinkdeployments"]
    assert (orders["namespace"], orders["count"], orders["more"], orders["problem"]) == ("prod", 1, False, "")
    assert "may not list pods" in found["pods"]["problem"]
    assert found["pods"]["problem_value"]["code"] == "discoveries.forbidden"
    assert [each["is_missing"] for each in answer["found"] if "spark" in each["kind"]].count(True) == 1
    assert not FoundResource.objects.exists(), "a test stores nothing"


def test_the_test_of_a_source_that_does_not_answer_says_why(admin: Client) -> None:
    yarn = {"kind": "yarn", "addresses": "http://rm.invalid:8088", "authentication": "bearer", "token": "s3cret"}
    source = DiscoverySource.objects.create(name="west", **yarn)
    answer = send(admin, "post", f"{PATH}/{source.pk}/test", {}).json()
    assert (answer["answers"], answer["found"]) == (False, [])
    assert "rm.invalid" in answer["sentence"]
    assert answer["sentence_value"]["code"]
    assert answer["remarks"] == ["The token is sent to rm.invalid without encryption. Use an https:// address."]
    assert [each["code"] for each in answer["remarks_value"]] == ["engines.token-unencrypted"]
