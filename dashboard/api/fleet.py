"""The fleet: all jobs with how they are."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from django.utils import timezone
from ninja import Query
from pydantic import Field

from dashboard.access.guard import reach_at
from dashboard.api.errors import invalid
from dashboard.api.operations import answers, router
from dashboard.api.paging import Asked, Listed, page_of_list
from dashboard.api.schemas.jobs import FleetOut, JobOut, job_out
from dashboard.queries.fleet import Selection, read_fleet, whole

routes = router("Fleet")


class AskedJobs(Asked):
    q: str = Field("", max_length=200, description="Part of the job's or the cluster's name.")
    level: Literal["", "failing", "degraded", "unknown", "healthy", "ended"] = ""
    cluster: str = Field("", max_length=100, description="The cluster's name.")
    labels: str = Field("", max_length=500, description="A selector, as rules have it: `team=payments, env!=dev`.")


@routes.get("/fleet", response=answers(FleetOut), summary="How everything is")
def fleet(request: HttpRequest) -> dict[str, Any]:
    found = read_fleet(Selection(), timezone.now(), reach_at(request))
    return {
        "jobs": found.known_jobs,
        "levels": {level.word: count for level, count in found.counts.items()},
        "silent_clusters": [cluster.name for cluster in found.silent_clusters],
        "last_answer_at": found.last_answer_at,
    }


@routes.get("/jobs", response=answers(Listed[JobOut]), summary="Jobs, the most urgent first")
def jobs(request: HttpRequest, asked: Query[AskedJobs]) -> dict[str, Any]:
    chosen = Selection(text=asked.q, level=asked.level, cluster=asked.cluster, labels=asked.labels)
    if chosen.problem:
        raise invalid("labels", asked.labels, chosen.problem)
    found = read_fleet(chosen, timezone.now(), reach_at(request))
    page = page_of_list(found.matching, asked, lambda row: str(row.facts.job.pk))
    return page | {"items": [job_out(row) for row in whole(page["items"])]}
