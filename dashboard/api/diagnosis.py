"""Why: of a checkpoint, of a job as it is now, of an incident."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Schema
from pydantic import Field

from dashboard.api.operations import answers, router
from dashboard.views.job import find_job
from monitoring.diagnosis import asking
from monitoring.diagnosis.finding import Finding
from monitoring.models import Checkpoint, Incident

routes = router("Diagnosis")


class EvidenceOut(Schema):
    label: str
    value: str = Field(description="With its unit.")
    usual: str = Field(description="What it is for this job otherwise; empty where that is not known.")


class AdviceOut(Schema):
    key: str = Field(description="The engine's own name of the setting, or Waymark's.")
    value: str = Field(description="Empty where only a person can know it.")
    why: str
    link: str


class FindingOut(Schema):
    name: str
    title: str
    sentence: str
    sentence_zh: str = Field(description="The same in Chinese.")
    confidence: str = Field(description="certain, likely or possible")
    evidence: list[EvidenceOut]
    advice: list[AdviceOut]


class ExpectationOut(Schema):
    figure: str = Field(description="duration (milliseconds), state_size (bytes) or interval (seconds)")
    expected: float = Field(description="The median of the hours that it is told from.")
    spread: float = Field(description="How they scatter about it: a robust standard deviation.")
    basis: str = Field(description="Which hours.")
    hours: int


class ForecastOut(Schema):
    state_per_day: float | None = Field(description="Bytes; null: fewer than seven days are known.")
    duration_per_day: float | None = Field(description="Milliseconds that the p95 of durations grows by.")
    exceeds_timeout_on: datetime | None = Field(
        description="When the p95 reaches the checkpoint time-out if it goes on so; null: not within a year."
    )
    days: int = Field(description="Days that it rests on.")


class DiagnosisOut(Schema):
    checkpoint_id: int | None = Field(
        description="The checkpoint that the causes are about, as /checkpoints/ names it."
    )
    causes: list[FindingOut]
    advices: list[FindingOut]
    usual: list[ExpectationOut] = Field(description="At this hour, of the last four weeks; empty without roll-ups.")
    forecast: ForecastOut | None = Field(description="Null without roll-ups.")


@routes.get(
    "/checkpoints/{int:checkpoint_id}/diagnosis",
    response=answers(list[FindingOut]),
    summary="Why it is slow or failed, the surest first",
)
def of_checkpoint(request: HttpRequest, checkpoint_id: int) -> list[dict[str, Any]]:
    found = Checkpoint.objects.select_related("run__job__cluster", "run__job__configuration").get(pk=checkpoint_id)
    return _findings(asking.of_checkpoint(found, found.operators.all(), timezone.now()))


@routes.get(
    "/jobs/{int:job_id}/diagnosis",
    response=answers(DiagnosisOut),
    summary="What is wrong with it now, and what of its configuration asks for trouble",
)
def of_job(request: HttpRequest, job_id: int) -> dict[str, Any]:
    found = asking.of_job(find_job(job_id), timezone.now())
    return {
        "checkpoint_id": found.checkpoint.pk if found.checkpoint else None,
        "causes": _findings(found.causes),
        "advices": _findings(found.advices),
        "usual": [{"figure": figure, **asdict(each)} for figure, each in found.usual.items()],
        "forecast": asdict(found.forecast) if found.forecast else None,
    }


@routes.get("/incidents/{int:incident_id}/diagnosis", response=answers(list[FindingOut]), summary="Its likely causes")
def of_incident(request: HttpRequest, incident_id: int) -> list[dict[str, Any]]:
    return _findings(asking.of_incident(Incident.objects.get(pk=incident_id), timezone.now()))


def _findings(found: Iterable[Finding]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "title": each.title.en,
            "sentence": each.sentence.en,
            "sentence_zh": each.sentence.zh,
            "confidence": each.confidence.words.en,
            "evidence": [{"label": e.label.en, "value": e.value, "usual": e.usual} for e in each.evidence],
            "advice": [{"key": a.key, "value": a.value, "why": a.why.en, "link": a.link} for a in each.advice],
        }
        for each in found
    ]
