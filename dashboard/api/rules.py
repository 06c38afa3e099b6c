"""Alert rules of every kind."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Query, Schema, Status
from pydantic import Field

from dashboard.access.guard import actor_of, reach_at, require, require_on
from dashboard.access.roles import Role
from dashboard.acts import rules as acts
from dashboard.api.errors import conflict, invalid
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of
from dashboard.api.schemas.reasons import ReasonJson
from dashboard.api.typed import Body, Span, checked, filled
from dashboard.forms.rule import RuleForm
from dashboard.queries.rules import rows_of
from dashboard.views.job import find_job
from dashboard.views.rules import known_kind, template_of
from monitoring.alerts.kinds import kinds
from monitoring.alerts.kinds.base import Day, Kind, Number, Subject
from monitoring.models import AlertRule

routes = router("Rules")


class RuleOut(Schema):
    id: int
    kind: str
    name: str
    job_id: int | None = Field(description="null: all jobs, or the jobs that the selector chooses.")
    selector: str
    sentence: str = Field(description="The rule as a sentence.")
    sentence_value: ReasonJson = Field(description="null: this version of Waymark does not know the kind.")
    threshold: int | None
    window_s: int | None
    parameters: dict[str, Any]
    check_every_s: int
    open_hold_s: int
    close_hold_s: int
    flap_opens: int
    flap_window_s: int
    severity: str
    runbook: str = Field(description="A URL, or what to do at an incident of the rule.")
    enabled: bool
    channels: list[int] = Field(description="Ids of the channels that are notified. Empty: all.")


class MeasureOut(Schema):
    name: str = Field(description="The field of a rule: threshold, window_s, or one of `parameters`.")
    label: str
    hint: str
    unit: str
    least: int | None
    most: int | None
    default: Any = None


class KindOut(Schema):
    name: str
    title: str
    of: str = Field(description="The subject of the rule: job, cluster or waymark.")
    measures: list[MeasureOut]


class RuleFields(Body):
    name: str = ""
    scope: str = Field("everything", description="everything or selector.")
    selector: str = Field("", description="For example team=payments,env!=dev.")
    threshold: Span = Field(None, description="In the unit of the kind, or a text such as 500 MB or 2 s.")
    window_s: Span = None
    parameters: dict[str, int | str | None] = Field({}, description="Further values of the kind.")
    check_every_s: Span = 300
    open_hold_s: Span = 0
    close_hold_s: Span = 0
    flap_opens: int = 4
    flap_window_s: Span = 3600
    severity: str = Field("warning", description="warning or critical.")
    runbook: str = Field("", description="A URL, or what to do at an incident of the rule.")
    enabled: bool = True
    channels: list[int] = []


class RuleIn(RuleFields):
    kind: str = Field(max_length=30, description="One of /rule-kinds.")
    job_id: int | None = Field(None, ge=1, lt=2**63, description="The job, if the rule is for one job only.")


class RulesParams(PageParams):
    job_id: int | None = Field(None, ge=1, lt=2**63)
    kind: str = Field("", max_length=30)


@routes.get("/rule-kinds", response=answers(list[KindOut]), summary="List the kinds of rules")
def rule_kinds(request: HttpRequest) -> list[dict[str, Any]]:
    return [_kind(kind) for kind in kinds().values()]


@routes.get("/rules", response=answers(Listed[RuleOut]), summary="List rules")
def rules(request: HttpRequest, params: Query[RulesParams]) -> dict[str, Any]:
    rows = AlertRule.objects.select_related("job").prefetch_related("channels")
    found = reach_at(request).narrow_to_jobs_or_all(rows)
    found = found.filter(job=params.job_id) if params.job_id is not None else found
    found = found.filter(kind=params.kind.replace("\0", "")) if params.kind else found
    page = page_of(found, params, ("id",))
    return page | {"items": [_rule(rule) for rule in page["items"]]}


@routes.get("/rules/{int:rule_id}", response=answers(RuleOut), summary="Get a rule")
def rule(request: HttpRequest, rule_id: int) -> dict[str, Any]:
    return _rule(_find(rule_id))


@routes.post("/rules", response=answers(RuleOut, 201), summary="Create a rule")
def add(request: HttpRequest, body: RuleIn) -> Status[dict[str, Any]]:
    require_on(request, Role.OPERATOR, body.job_id, _cluster_of(body.job_id))
    try:
        kind = known_kind(body.kind)
    except Http404:
        raise invalid("kind", body.kind, f"One of: {', '.join(kinds())}.") from None
    if body.job_id is not None and kind.subject is not Subject.JOB:
        raise invalid("job_id", body.job_id, f"A rule of kind {kind.name} cannot apply to one job. Omit job_id.")
    job = find_job(body.job_id) if body.job_id is not None else None
    given = {name: value for name, value in body.given().items() if name not in ("kind", "job_id")}
    return Status(201, _save(request, kind, given, lambda: template_of(kind, job)))


@routes.patch("/rules/{int:rule_id}", response=answers(RuleOut), summary="Change a rule")
def change(request: HttpRequest, rule_id: int, body: RuleFields) -> dict[str, Any]:
    require(request, Role.OPERATOR)
    return _save(request, known_kind(_find(rule_id).kind), body.given(), lambda: _find(rule_id))


@routes.delete("/rules/{int:rule_id}", response=answers(None, 204), summary="Delete a rule")
def remove(request: HttpRequest, rule_id: int) -> Status[None]:
    require(request, Role.OPERATOR)
    try:
        acts.remove_rule(_find(rule_id), actor_of(request))
    except acts.RuleRequired as stays:
        raise conflict(stays) from stays
    return Status(204, None)


def _save(request: HttpRequest, kind: Kind, given: dict[str, Any], rule_anew: Any) -> dict[str, Any]:
    parameters = given.pop("parameters", {}) or {}
    form = RuleForm(kind, rule_anew())
    if given.get("selector") and "scope" not in given and "scope" in form.fields:
        given["scope"] = "selector"
    bound = checked(RuleForm(kind, rule_anew(), filled(form, {**parameters, **given})))
    return _rule(_find(acts.save_rule(bound, actor_of(request), timezone.now()).pk))


def _find(rule_id: int) -> AlertRule:
    return AlertRule.objects.select_related("job__cluster").prefetch_related("channels").get(pk=rule_id)


def _cluster_of(job_id: int | None) -> int | None:
    return None if job_id is None else find_job(job_id).cluster_id


def _rule(found: AlertRule) -> dict[str, Any]:
    names = ("id", "kind", "name", "job_id", "selector", "threshold", "window_s", "parameters", "check_every_s")
    more = ("open_hold_s", "close_hold_s", "flap_opens", "flap_window_s", "severity", "runbook", "enabled")
    own = {name: getattr(found, name) for name in (*names, *more)}
    (row,) = rows_of([found])
    text = {"sentence": row.sentence, "sentence_value": row.explanation}
    return own | text | {"channels": [each.pk for each in found.channels.all()]}


def _kind(kind: Kind) -> dict[str, Any]:
    measures = {"threshold": kind.threshold, "window_s": kind.window, **kind.parameters}
    listed = [_measure(name, measure) for name, measure in measures.items() if measure is not None]
    return {"name": kind.name, "title": kind.title, "of": kind.subject.name.lower(), "measures": listed}


def _measure(name: str, measure: Number | Day) -> dict[str, Any]:
    common = {"name": name, "label": measure.label, "hint": measure.hint}
    if isinstance(measure, Day):
        return common | {"unit": "day", "least": None, "most": None}
    unit = measure.unit.name.lower()
    return common | {"unit": unit, "least": measure.least, "most": measure.most, "default": measure.default}
