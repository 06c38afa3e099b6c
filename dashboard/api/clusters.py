"""Clusters and the actions of administrators. Secrets can be written but not read."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Query, Schema, Status
from pydantic import Field

from dashboard.access.guard import actor_of, reach_at, require
from dashboard.access.roles import Role
from dashboard.api.errors import Refused, errors_of
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of_list
from dashboard.api.schemas.reasons import ReasonJson
from dashboard.api.schemas.rows import ClusterOut
from dashboard.api.typed import Body, checked, filled
from dashboard.forms.cluster import ClusterForm
from dashboard.forms.note import ReasonForm
from dashboard.queries.clusters import ClusterCard, read_cluster, read_clusters
from monitoring.engine import registration
from monitoring.engine.examination import Problem, examine
from monitoring.models import Cluster
from monitoring.reasons.columns import columns

routes = router("Clusters")


class ClustersParams(PageParams):
    removed: bool = Field(False, description="true: removed clusters, whose history is kept.")


class ClusterIn(Body):
    name: str = ""
    discovery: Literal["url", "zookeeper", "directory", "agent", "event_log"] = Field(
        "url",
        description="directory: Waymark only watches the queries whose checkpoint locations it finds there. "
        "agent: it only watches the queries that programs report. event_log: it only watches the queries in Spark's "
        "event logs there.",
    )
    rest_url: str = Field(
        "",
        description="For directory and event_log: an absolute path, or an address such as s3://bucket/path. "
        "For agent: empty.",
    )
    history_server: str = Field(
        "",
        description="The URL of Flink's History Server, where Waymark reads the end of a job whose cluster has ended. "
        "It gets the credentials of the cluster. Empty: none.",
    )
    savepoint_target: str = Field(
        "",
        description="For directory: where Waymark stores savepoints of the queries, an absolute path or an address. "
        "Empty: it takes none.",
    )
    zookeeper_hosts: str = ""
    zookeeper_root: str = ""
    zookeeper_cluster_id: str = ""
    zookeeper_authentication: Literal["none", "digest", "sasl"] = "none"
    zookeeper_username: str = ""
    zookeeper_password: str = Field("", description="A secret. Empty: keeps the stored one.")
    zookeeper_tls: bool = Field(False, description="Use TLS with the certificates below.")
    authentication: Literal["none", "bearer", "basic"] = "none"
    token: str = Field("", description="A secret. Empty: keeps the stored one.")
    username: str = ""
    password: str = Field("", description="A secret. Empty: keeps the stored one.")
    ca_bundle: str = Field("", description="PEM.")
    client_certificate: str = Field("", description="PEM.")
    client_key: str = Field("", description="PEM. A secret.")
    poll_interval_s: float = 3
    request_limit_s: float = 10
    requests_at_once: int = 8
    savepoints_at_once: int = Field(4, description="Scheduled savepoints of the cluster at the same time.")
    savepoint_jitter_s: int = Field(60, description="Seconds over which savepoints due at the same time are spread.")
    labels: dict[str, str] = {}
    unanswered: bool = Field(False, description="Save without a connection.")


class ReasonIn(Body):
    reason: str


class WatchIn(Body):
    watched: bool
    reason: str = Field("", description="Required to stop polling.")


class ExaminedOut(Schema):
    answers: bool
    sentence: str
    sentence_value: ReasonJson
    field: str = Field("", description="The field to change, if the cluster does not answer.")
    remarks: list[str] = Field([], description="Warnings, such as a token that is sent without TLS.")
    remarks_value: list[ReasonJson] = []


@routes.get("/clusters", response=answers(Listed[ClusterOut]), summary="List clusters")
def clusters(request: HttpRequest, params: Query[ClustersParams]) -> dict[str, Any]:
    found = read_clusters(timezone.now(), reach_at(request))
    cards = found.removed if params.removed else found.shown
    page = page_of_list(cards, params, lambda card: str(card.cluster.pk))
    return page | {"items": [_cluster(card) for card in page["items"]]}


@routes.get("/clusters/{int:cluster_id}", response=answers(ClusterOut), summary="Get a cluster")
def cluster(request: HttpRequest, cluster_id: int) -> dict[str, Any]:
    return _read(cluster_id)


@routes.post("/clusters", response=answers(ClusterOut, 201), summary="Add a cluster")
def add(request: HttpRequest, body: ClusterIn) -> Status[dict[str, Any]]:
    require(request, Role.ADMIN)
    form = _examined(ClusterForm(filled(ClusterForm(), body.given())))
    registration.add(form.instance, actor_of(request))
    return Status(201, _read(form.instance.pk))


@routes.patch("/clusters/{int:cluster_id}", response=answers(ClusterOut), summary="Change the connection of a cluster")
def change(request: HttpRequest, cluster_id: int, body: ClusterIn) -> dict[str, Any]:
    require(request, Role.ADMIN)
    data = filled(ClusterForm(instance=_find(cluster_id)), body.given())
    registration.change(_examined(ClusterForm(data, instance=_find(cluster_id))).instance, actor_of(request))
    return _read(cluster_id)


@routes.post(
    "/clusters/{int:cluster_id}/test", response=answers(ExaminedOut), summary="Test the connection of a cluster"
)
def test(request: HttpRequest, cluster_id: int) -> dict[str, Any]:
    require(request, Role.ADMIN)
    outcome = examine(_find(cluster_id), timezone.now)
    if isinstance(outcome, Problem):
        return {"answers": False, "field": outcome.field, **columns("sentence", outcome.reason)}
    remarks = {"remarks": list(map(str, outcome.remarks)), "remarks_value": list(outcome.remarks)}
    return {"answers": True, **columns("sentence", outcome.reason), **remarks}


@routes.post(
    "/clusters/{int:cluster_id}/watch", response=answers(ClusterOut), summary="Start or stop polling a cluster"
)
def watch(request: HttpRequest, cluster_id: int, body: WatchIn) -> dict[str, Any]:
    require(request, Role.ADMIN)
    reason = "" if body.watched else _reason(body.reason)
    registration.watch(_find(cluster_id), watched=body.watched, actor=actor_of(request), reason=reason)
    return _read(cluster_id)


@routes.post(
    "/clusters/{int:cluster_id}/same",
    response=answers(ClusterOut),
    summary="Confirm that the answering cluster is this one",
)
def same(request: HttpRequest, cluster_id: int) -> dict[str, Any]:
    require(request, Role.ADMIN)
    registration.confirm_same(_find(cluster_id), actor_of(request))
    return _read(cluster_id)


@routes.post(
    "/clusters/{int:cluster_id}/remove", response=answers(None, 204), summary="Remove a cluster (its history stays)"
)
def remove(request: HttpRequest, cluster_id: int, body: ReasonIn) -> Status[None]:
    require(request, Role.ADMIN)
    registration.remove(_find(cluster_id), actor=actor_of(request), reason=_reason(body.reason), now=timezone.now())
    return Status(204, None)


def _examined(form: ClusterForm) -> ClusterForm:
    checked(form, hidden=ClusterForm.unshown)
    if not form.examine(timezone.now):
        raise Refused(422, fields=errors_of(form, ClusterForm.unshown))
    return form


def _reason(text: str) -> str:
    return str(checked(ReasonForm({"reason": text})).cleaned_data["reason"])


def _find(cluster_id: int) -> Cluster:
    return Cluster.objects.get(pk=cluster_id)


def _read(cluster_id: int) -> dict[str, Any]:
    return _cluster(read_cluster(_find(cluster_id), timezone.now()))


def _cluster(card: ClusterCard) -> dict[str, Any]:
    own = {name: getattr(card.cluster, name) for name in ClusterOut.Meta.fields}
    counted = {"state": card.state[0], "jobs": card.jobs, "running": card.running}
    return own | counted | {"reachable": card.cluster.reachable, "last_error_value": card.cluster.last_error_value}
