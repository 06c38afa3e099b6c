"""What a platform reports about the end of an application counts only for the run that it is about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from monitoring.discovery.platform import reported_end
from monitoring.engine.evidence import ReportedEnd
from monitoring.models import Cluster, DiscoverySource, FoundResource, Run
from monitoring.reasons.discoveries import DiscoveryReason
from monitoring.reasons.engines import EngineReason

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
ID = "ab" * 16
APPLICATION = {"takeover_s": 0.0, "savepoints": ""}
YARN = {"application": "FINISHED", "final_status": "FAILED", "ended_at": "2026-11-21T12:30:00+00:00"}


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def end(state: dict[str, str], *, changed: float = 31, names: dict[str, str] | None = None, **values: object):
    """Return what counts for a run that began at START and that the cluster last listed after 20 minutes."""
    identity = {"kind": "name", "names": names or {}, "servers": [], "process": "", "application": APPLICATION}
    cluster = Cluster(name="a", identity=values.pop("identity", identity), read_until=at(20))
    run = Run(engine_job_id=ID, started_at=START)
    row = FoundResource(source=DiscoverySource(name="east"), namespace="prod", name="orders", uid="application_1_0002")
    row.state, row.changed_at = state, at(changed)
    for name, value in values.items():
        setattr(row, name, value)
    return reported_end(cluster, run, [row])


def why(state: str) -> object:
    return DiscoveryReason.JOB_ENDED(source="east", resource="prod/orders", state=state)


@pytest.mark.parametrize("state", ["FAILED", "FINISHED", "CANCELED"])
def test_an_operator_reports_the_end_of_the_job_with_this_id(state):
    assert end({"job": state, "job_id": ID}) == ReportedEnd(state, at(31), why(state))


@pytest.mark.parametrize("state", ["RUNNING", "RECONCILING", "SUSPENDED", ""])
def test_a_job_that_may_live_has_not_ended(state):
    assert end({"job": state, "job_id": ID}) is None


def test_the_end_of_another_job_says_nothing():
    assert end({"job": "FAILED", "job_id": "cd" * 16}) is None
    assert end({"job": "FAILED"}) is None


@pytest.mark.parametrize("changed", [19, 20])
def test_a_report_from_before_the_last_answer_is_outdated(changed):
    assert end({"job": "FAILED", "job_id": ID}, changed=changed) is None
    assert end(YARN, changed=changed) is None


@pytest.mark.parametrize(
    ("status", "state"), [("SUCCEEDED", "FINISHED"), ("FAILED", "FAILED"), ("KILLED", "CANCELED"), ("UNDEFINED", None)]
)
def test_yarn_reports_the_end_of_the_application(status, state):
    found = end(YARN | {"final_status": status}, names={"cluster-id": "application_1_0002"})
    assert found == (ReportedEnd(state, at(30), why(state)) if state else None)


@pytest.mark.parametrize(
    "ended_at", ["2026-11-21T11:59:59Z", "2026-11-21T12:00:00Z", "2026-11-21T12:30:00", "2026-13-01T00:00:00Z", "soon"]
)
def test_an_application_that_ended_before_the_run_is_another_one(ended_at):
    assert end(YARN | {"ended_at": ended_at}) is None


def test_an_application_with_another_id_is_another_one():
    assert end(YARN, names={"cluster-id": "application_1_0001"}) is None
    assert end(YARN, names={"cluster-id": "/orders"}) is not None


@pytest.mark.parametrize("identity", [None, {"kind": "name", "names": {}, "servers": [], "process": ""}])
def test_the_end_of_a_session_cluster_is_not_the_end_of_its_jobs(identity):
    assert end(YARN, identity=identity) is None


def test_the_error_of_the_platform_is_kept():
    problem = EngineReason.FIRST_SEEN()
    found = end({"job": "FAILED", "job_id": ID}, problem="OOMKilled", problem_value=problem)
    assert found.error == "OOMKilled"
