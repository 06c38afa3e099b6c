"""Waymark's health, the audit log and the current user."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Schema
from pydantic import Field

from dashboard.access.guard import access_of
from dashboard.api.operations import answers, router
from dashboard.api.paging import Listed, PageParams, page_of
from dashboard.api.schemas.reasons import ReasonJson
from dashboard.api.schemas.rows import AuditOut
from dashboard.api.typed import Moment
from dashboard.queries.audit import AuditFilter, find_entries
from dashboard.views.health import read_health_facts
from monitoring.reasons.columns import columns

routes = router("System")


class HealthFindingOut(Schema):
    part: str
    text: str
    text_value: ReasonJson = Field(description="The text as data. null: an account with grants only.")


class SystemHealthOut(Schema):
    healthy: bool
    problems: list[HealthFindingOut]
    warnings: list[HealthFindingOut]


class AuditParams(PageParams):
    q: str = Field("", max_length=200, description="Part of the actor or of the object.")
    actor: str = Field("", max_length=150, description="The exact name of the actor.")
    action: str = Field(
        "", max_length=100, description="For example savepoint.request, or savepoint. for all actions on savepoints."
    )
    since: Moment | None = None
    until: Moment | None = None


class MeOut(Schema):
    username: str
    role: str | None = Field(description="The role for all objects. null: grants only.")
    may_write: bool = Field(description="Whether this request has write permission.")
    token: str | None = Field(description="The name of the token of this request.")


@routes.get("/me", response=answers(MeOut), summary="Get the current user")
def me(request: HttpRequest) -> dict[str, Any]:
    access = access_of(request)
    role, token = access.reach.global_role, access.token
    may_write = token is None or token.may_write
    return {
        "username": request.user.get_username(),
        "role": None if role is None else role.word,
        "may_write": may_write,
        "token": token.name if token else None,
    }


@routes.get("/health", response=answers(SystemHealthOut), summary="Get the health of Waymark")
def health(request: HttpRequest) -> dict[str, Any]:
    _, verdict = read_health_facts()
    seen = access_of(request).reach.is_unrestricted
    parts = {
        name: [{"part": each.part, **columns("text", each.reason if seen else "")} for each in found]
        for name, found in (("problems", verdict.problems), ("warnings", verdict.warnings))
    }
    return {"healthy": verdict.healthy, **parts}


@routes.get("/audit", response=answers(Listed[AuditOut]), summary="List the audit log, newest first")
def audit(request: HttpRequest, params: Query[AuditParams]) -> dict[str, Any]:
    chosen = AuditFilter(params.q, params.actor, params.action, params.since, params.until)
    return page_of(find_entries(chosen), params, ("-at", "-id"))
