"""Reports of the agent in programs of Spark. Only a token for reports may call this, and only for its cluster."""

from __future__ import annotations

from collections.abc import Collection

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.utils import timezone
from ninja import Schema
from pydantic import Field

from dashboard.access.guard import access_of
from dashboard.access.roles import Role
from dashboard.api.errors import FieldError, Refused
from dashboard.api.operations import answers, router
from monitoring.engine.errors import Malformed
from monitoring.engine.reported.report import LARGEST_BODY, VERSION, report_in
from monitoring.engine.reported.storing import store
from monitoring.models import Cluster, Discovery, WatchedQuery
from monitoring.reasons.reason import Reason

routes = router("Agent")


class StoredOut(Schema):
    version: int = Field(description="The version of the format. The agent takes an answer without it for no answer.")
    stored: int = Field(description="How many batches are new. A repeated report has none.")


@routes.post(
    "/agent/reports",
    response=answers(StoredOut),
    summary="Report streaming queries (for the agent)",
    description="Needs a token for reports. The body is the agent's: see deploy/agent/waymark_agent.py.",
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}},
)
def report(request: HttpRequest) -> dict[str, int]:
    cluster = _cluster(request)
    if len(request.body) > LARGEST_BODY:
        raise Refused(413, f"A report has at most {LARGEST_BODY:,} bytes.")
    now = timezone.now()
    try:
        found = report_in(request.body, now)
        _require_operator(request, cluster, found.query_ids)
        stored = store(cluster, found, now)
    except Malformed as error:
        raise Refused(400, fields=[FieldError(field=_field(error.reason), value=None, message=str(error))]) from error
    return {"version": VERSION, "stored": stored}


def _require_operator(request: HttpRequest, cluster: Cluster, query_ids: Collection[str]) -> None:
    """Raise PermissionDenied if a query belongs to a job of another cluster that the account does not operate.

    The job would otherwise come to the cluster of the token, and with it the right to change the job.
    """
    reach = access_of(request).reach
    queries = WatchedQuery.objects.filter(query_id__in=query_ids, job__isnull=False).exclude(job__cluster=cluster)
    for query_id, job, other in queries.values_list("query_id", "job", "job__cluster"):
        if (reach.role_on(job, other) or Role.VIEWER) < Role.OPERATOR:
            raise PermissionDenied(
                f"The query {query_id} belongs to a job of another cluster, and the account of this token is not an "
                "operator of that job."
            )


def _field(reason: Reason | str) -> str:
    """Return the path of the field that the reason names, "" if it concerns the whole body."""
    if isinstance(reason, str):
        return ""
    where, name = str(reason.args.get("where", "")), str(reason.args.get("name", ""))
    return ".".join(filter(None, (where, name))).removeprefix("report").removeprefix(".")


def _cluster(request: HttpRequest) -> Cluster:
    """Return the cluster of the token. Raise PermissionDenied for other tokens, and if its account lost its rights."""
    access = access_of(request)
    cluster = access.token.reports_for if access.token is not None else None
    if cluster is None:
        raise PermissionDenied("Only a token for reports can do this. Create one on the page API tokens.")
    if cluster.archived_at is not None or cluster.discovery != Discovery.AGENT:
        raise PermissionDenied(f"The cluster {cluster} takes no reports: it was removed, or uses no agent.")
    role = access.reach.role_on(None, cluster.pk)
    if role is None or role < Role.OPERATOR:
        raise PermissionDenied(f"The account of this token is not an operator of the cluster {cluster}.")
    return cluster
