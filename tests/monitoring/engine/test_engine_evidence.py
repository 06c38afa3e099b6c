"""What an answer, or a missing answer, proves about one job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from monitoring.engine.answers import JobOverview
from monitoring.engine.evidence import (
    Alive,
    Answered,
    Missing,
    NoAnswer,
    ReportedEnd,
    Terminal,
    Unknown,
    Unreachable,
    evidence_of,
)
from monitoring.reasons.engines import EngineReason

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ID, OTHER = "1" * 32, "2" * 32


def naming(state: str = "RUNNING", job_id: str = ID) -> Answered:
    return Answered({job_id: JobOverview(job_id, "a", state, NOW, None)})


@pytest.mark.parametrize("state", ["INITIALIZING", "RUNNING", "FAILING", "RESTARTING", "SUSPENDED", "RECONCILING"])
def test_a_job_named_by_the_engine_is_alive(state):
    assert evidence_of(ID, naming(state), Missing(NOW, 9), NOW) == Alive(state)


@pytest.mark.parametrize("state", ["FAILED", "CANCELED", "FINISHED"])
def test_a_named_job_has_ended(state):
    assert evidence_of(ID, naming(state), None, NOW) == Terminal(state)


@pytest.mark.parametrize(
    ("polls_before", "seconds", "lost"),
    [(0, 0, False), (1, 29, False), (1, 30, True), (20, 29, False), (20, 30, True)],
)
def test_a_job_is_lost_after_two_polls_and_thirty_seconds(polls_before, seconds, lost):
    held = Missing(NOW, polls_before) if polls_before else None
    evidence = evidence_of(ID, naming(job_id=OTHER), held, NOW + timedelta(seconds=seconds))
    assert isinstance(evidence, Unknown)
    assert (evidence.lost, evidence.missing.polls) == (lost, polls_before + 1)


@pytest.mark.parametrize(("seconds", "lost"), [(30, False), (89, False), (90, True)])
def test_an_engine_without_any_job_may_have_just_started(seconds, lost):
    evidence = evidence_of(ID, Answered({}), Missing(NOW, 5), NOW + timedelta(seconds=seconds))
    assert isinstance(evidence, Unknown)
    assert evidence.lost == lost
    assert evidence.why == EngineReason.NO_JOB_KNOWN(polls=6, seconds=seconds)


def test_silence_is_never_a_loss():
    evidence = evidence_of(ID, NoAnswer("refused"), Missing(NOW, 50), NOW + timedelta(days=1))
    assert evidence == Unreachable("refused")


def test_an_end_that_another_source_reports_counts_only_for_its_job_and_only_in_silence():
    end = ReportedEnd("FAILED", NOW, EngineReason.FIRST_SEEN())
    assert evidence_of(ID, NoAnswer("refused", {ID: end}), None, NOW) == Terminal("FAILED", end)
    assert evidence_of(ID, NoAnswer("refused", {OTHER: end}), None, NOW) == Unreachable("refused")
    assert evidence_of(ID, naming("RUNNING"), None, NOW) == Alive("RUNNING")


def test_a_job_that_the_engine_does_not_deny_is_never_lost():
    answer = Answered({}, {ID: "stored, but could not be recovered yet"})
    evidence = evidence_of(ID, answer, Missing(NOW, 50), NOW + timedelta(days=1))
    assert evidence == Unreachable("stored, but could not be recovered yet")
