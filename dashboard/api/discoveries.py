"""Sources that find clusters, and the resources that they have found. Secrets can be written but not read."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import ModelSchema, Query, Schema, Status
from pydantic import Field

from dashboard.access.guard import actor_of, require
from dashboard.access.roles import Role
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of
from dashboard.api.schemas.reasons import ReasonJson
from dashboard.api.typed import Body, checked, filled
from dashboard.forms.discovery import DiscoveryForm
from dashboard.queries.discoveries import SourceCard, read_sources
from monitoring.discovery import sources
from monitoring.discovery.examination import Finding, examine, remarks_on
from monitoring.models import DiscoverySource, FoundResource, WatchedKind
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import Reason

routes = router("Found clusters")


class WatchedKindOut(ModelSchema):
    problem_value: ReasonJson

    class Meta:
        model = WatchedKind
        fields = ("kind", "namespace", "listed_at", "problem")


class DiscoveryOut(ModelSchema):
    state: str = Field(description="The status of the source: off, error, problems, new (not read yet), or reads.")
    resources: int = Field(description="Number of resources that exist.")
    clusters: int
    last_error_value: ReasonJson
    problems: list[WatchedKindOut] = Field(
        description="Kinds of resources that cannot be read, for example for lack of rights."
    )
    missing: list[WatchedKindOut] = Field(description="Kinds of resources whose operator is not installed.")

    class Meta:
        model = DiscoverySource
        fields = (
            *("id", "name", "kind", "in_cluster", "namespaces", "label_selector", "addresses", "authentication"),
            *("username", "queues", "users", "application_tags", "address_pattern", "may_change_resources", "enabled"),
            *("last_answer_at", "last_error", "created_at"),
        )


class FoundResourceOut(ModelSchema):
    cluster_id: int | None = Field(description="The cluster that Waymark monitors because of the resource.")
    problem_value: ReasonJson

    class Meta:
        model = FoundResource
        fields = (
            *("id", "kind", "namespace", "name", "uid", "labels", "rest_url", "deployment", "state", "problem"),
            *("found_at", "changed_at", "gone_at"),
        )


class DiscoveryFindingOut(Schema):
    kind: str
    namespace: str = Field(description="Empty: all.")
    count: int
    more: bool = Field(description="There are more than `count`.")
    problem: str = Field(description="Why resources of this kind cannot be read.")
    problem_value: ReasonJson
    is_missing: bool = Field(description="The server does not have this kind of resources, which is no problem.")


class DiscoveryExaminedOut(Schema):
    answers: bool
    sentence: str = Field("", description="Why the source cannot be used.")
    sentence_value: ReasonJson = None
    found: list[DiscoveryFindingOut] = []
    remarks: list[str] = Field([], description="Warnings, such as a token that is sent without TLS.")
    remarks_value: list[ReasonJson] = []


class DiscoveryIn(Body):
    name: str = ""
    kind: Literal["kubernetes", "yarn"] = Field("kubernetes", description="A source keeps its kind.")
    in_cluster: bool = Field(False, description="Use the service account of the worker's pod, and no kubeconfig.")
    kubeconfig: str = Field("", description="A secret. Empty: keeps the stored one. It may not name programs or files.")
    namespaces: str = Field("", description="Separated by commas. Empty: all.")
    label_selector: str = ""
    addresses: str = Field("", description="For yarn: those of all ResourceManagers, separated by commas.")
    authentication: Literal["none", "bearer", "basic"] = "none"
    token: str = Field("", description="A secret. Empty: keeps the stored one.")
    username: str = ""
    password: str = Field("", description="A secret. Empty: keeps the stored one.")
    ca_bundle: str = Field("", description="PEM.")
    queues: str = Field("", description="Separated by commas, with the queues below them. Empty: all.")
    users: str = Field("", description="Separated by commas. Empty: all.")
    application_tags: str = Field("", description="Separated by commas. One is enough. Empty: all applications.")
    address_pattern: str = Field(
        "",
        description="The address of the REST API of a deployment. Empty: `http://{name}-rest.{namespace}:8081` for "
        "kubernetes, `http://{address}` for yarn.",
    )
    may_change_resources: bool = Field(False, description="Restart and save jobs through the Flink operator.")
    enabled: bool = True


@routes.get("/discoveries", response=answers(Listed[DiscoveryOut]), summary="List sources of clusters")
def discoveries(request: HttpRequest, params: Query[PageParams]) -> dict[str, Any]:
    page = page_of(DiscoverySource.objects.all(), params, ("id",))
    return page | {"items": [_json(card) for card in read_sources(page["items"])]}


@routes.get("/discoveries/{int:discovery_id}", response=answers(DiscoveryOut), summary="Get a source of clusters")
def discovery(request: HttpRequest, discovery_id: int) -> dict[str, Any]:
    return _read(discovery_id)


@routes.get(
    "/discoveries/{int:discovery_id}/resources",
    response=answers(Listed[FoundResourceOut]),
    summary="List the resources that a source has found",
)
def found(request: HttpRequest, discovery_id: int, params: Query[PageParams]) -> dict[str, Any]:
    return page_of(_find(discovery_id).found_resources.all(), params, ("id",))


@routes.post("/discoveries", response=answers(DiscoveryOut, 201), summary="Add a source of clusters")
def add(request: HttpRequest, body: DiscoveryIn) -> Status[dict[str, Any]]:
    require(request, Role.ADMIN)
    return Status(201, _save(request, body, None))


@routes.patch("/discoveries/{int:discovery_id}", response=answers(DiscoveryOut), summary="Change a source of clusters")
def change(request: HttpRequest, discovery_id: int, body: DiscoveryIn) -> dict[str, Any]:
    require(request, Role.ADMIN)
    return _save(request, body, discovery_id)


@routes.post(
    "/discoveries/{int:discovery_id}/test",
    response=answers(DiscoveryExaminedOut),
    summary="Test the connection of a source of clusters",
)
def test(request: HttpRequest, discovery_id: int) -> dict[str, Any]:
    require(request, Role.ADMIN)
    source = _find(discovery_id)
    outcome, remarks = examine(source), remarks_on(source)
    said = {"remarks": list(map(str, remarks)), "remarks_value": remarks}
    if isinstance(outcome, Reason | str):
        return {"answers": False, **columns("sentence", outcome), **said}
    return {"answers": True, "found": [_finding(each) for each in outcome], **said}


@routes.delete(
    "/discoveries/{int:discovery_id}", response=answers(None, 204), summary="Remove a source (its clusters stay)"
)
def remove(request: HttpRequest, discovery_id: int) -> Status[None]:
    require(request, Role.ADMIN)
    sources.remove(_find(discovery_id), actor_of(request))
    return Status(204, None)


def _save(request: HttpRequest, body: DiscoveryIn, discovery_id: int | None) -> dict[str, Any]:
    def stored() -> DiscoverySource:
        return DiscoverySource() if discovery_id is None else _find(discovery_id)

    data = filled(DiscoveryForm(instance=stored()), body.given())
    form = checked(DiscoveryForm(data, instance=stored()), hidden=DiscoveryForm.unshown)
    sources.save(form.instance, actor_of(request))
    return _read(form.instance.pk)


def _finding(found: Finding) -> dict[str, Any]:
    names = ("kind", "namespace", "count", "more", "is_missing")
    return {name: getattr(found, name) for name in names} | columns("problem", found.problem)


def _find(discovery_id: int) -> DiscoverySource:
    return DiscoverySource.objects.get(pk=discovery_id)


def _read(discovery_id: int) -> dict[str, Any]:
    [card] = read_sources([_find(discovery_id)])
    return _json(card)


def _json(card: SourceCard) -> dict[str, Any]:
    return {name: getattr(card.source, name) for name in DiscoveryOut.Meta.fields} | {
        "state": card.state[0],
        "resources": card.resources,
        "clusters": card.clusters,
        "last_error_value": card.source.last_error_value,
        "problems": card.problems,
        "missing": card.missing,
    }
