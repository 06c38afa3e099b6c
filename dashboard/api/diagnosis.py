"""The diagnosis of a checkpoint, a job or an incident."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Schema
from pydantic import Field

from dashboard.api.errors import readable
from dashboard.api.operations import answers, router
from dashboard.api.schemas.reasons import ReasonJson
from dashboard.queries.finding import find_checkpoint
from dashboard.views.job import find_job
from monitoring.diagnosis import diagnoses
from monitoring.diagnosis.finding import Finding
from monitoring.history.rows import operators_of
from monitoring.models import Incident
from monitoring.reasons.columns import columns
from monitoring.reasons.reason import render

routes = router("Diagnosis")


class EvidenceOut(Schema):
    label: str
    label_value: ReasonJson
    value: str = Field(description="With its unit.")
    value_value: ReasonJson = Field(description="The value as data. null: the text has no unit, such as a count.")
    usual: str = Field(description="The usual value for this job. Empty if unknown.")
    usual_value: ReasonJson


class AdviceOut(Schema):
    key: str = Field(description="The name of the setting in the engine or in Waymark.")
    value: str = Field(description="Empty if only a person can decide it.")
    why: str
    why_value: ReasonJson
    link: str


class FindingOut(Schema):
    name: str
    title: str
    title_value: ReasonJson
    sentence: str
    sentence_value: ReasonJson
    # Kept for clients of earlier versions. Other languages get no such key.
    sentence_zh: str = Field(description="The sentence in Chinese.")
    confidence: str = Field(description="certain, likely or possible")
    evidence: list[EvidenceOut]
    advice: list[AdviceOut]


class ExpectationOut(Schema):
    figure: str = Field(description="duration (milliseconds), state_size (bytes) or interval (seconds)")
    expected: float = Field(description="The median of the hours that the expectation is based on.")
    spread: float = Field(description="The spread around the median, as a robust standard deviation.")
    basis: str = Field(description="The hours that the expectation is based on.")
    basis_value: ReasonJson
    hours: int


class ForecastOut(Schema):
    state_per_day: float | None = Field(description="Growth in bytes. null: fewer than seven days of data.")
    duration_per_day: float | None = Field(description="Growth of the p95 of durations in milliseconds.")
    exceeds_timeout_on: datetime | None = Field(
        description="When the p95 reaches the checkpoint timeout at this growth. null: not within a year."
    )
    days: int = Field(description="Days of data that the forecast is based on.")


class DiagnosisOut(Schema):
    checkpoint_id: int | None = Field(description="The checkpoint of the causes, as in /checkpoints/{id}.")
    causes: list[FindingOut]
    advices: list[FindingOut]
    usual: list[ExpectationOut] = Field(
        description="Usual values at this hour, from the last four weeks. Empty without roll-ups."
    )
    forecast: ForecastOut | None = Field(description="null without roll-ups.")


@routes.get(
    "/checkpoints/{int:checkpoint_id}/diagnosis",
    response=answers(list[FindingOut]),
    summary="Get the probable causes of a slow or failed checkpoint",
)
def of_checkpoint(request: HttpRequest, checkpoint_id: int) -> list[dict[str, Any]]:
    with readable():
        found = find_checkpoint(request, checkpoint_id)
        operators = operators_of(found)
    return _findings(diagnoses.of_checkpoint(found, operators, timezone.now()))


@routes.get(
    "/jobs/{int:job_id}/diagnosis",
    response=answers(DiagnosisOut),
    summary="Get a job's current problems and advice on its configuration",
)
def of_job(request: HttpRequest, job_id: int) -> dict[str, Any]:
    found = diagnoses.of_job(find_job(job_id), timezone.now())
    return {
        "checkpoint_id": found.checkpoint.pk if found.checkpoint else None,
        "causes": _findings(found.causes),
        "advices": _findings(found.advices),
        "usual": [
            {"figure": figure, **vars(each), **columns("basis", each.basis)} for figure, each in found.usual.items()
        ],
        "forecast": asdict(found.forecast) if found.forecast else None,
    }


@routes.get(
    "/incidents/{int:incident_id}/diagnosis",
    response=answers(list[FindingOut]),
    summary="Get the probable causes of an incident",
)
def of_incident(request: HttpRequest, incident_id: int) -> list[dict[str, Any]]:
    with readable():
        return _findings(diagnoses.of_incident(Incident.objects.get(pk=incident_id), timezone.now()))


def _findings(found: Iterable[Finding]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            **columns("title", each.title),
            **columns("sentence", each.sentence),
            "sentence_zh": render(each.sentence, "zh-hans"),
            "confidence": str(each.confidence.reason),
            "evidence": [
                columns("label", e.label) | columns("value", e.value) | columns("usual", e.usual) for e in each.evidence
            ],
            "advice": [{"key": a.key, "value": a.value, **columns("why", a.why), "link": a.link} for a in each.advice],
        }
        for each in found
    ]
