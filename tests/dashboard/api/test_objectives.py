"""The API sets objectives, and a job has its budget."""

from __future__ import annotations

from datetime import datetime

from monitoring.models import Job, Objective
from tests.dashboard import builders as make
from tests.dashboard.api.conftest import Caller


def test_an_objective_is_created_changed_and_deleted(api: Caller, job: Job) -> None:
    made = api.post("/objectives", {"job_id": job.pk, "limit_ms": "45 s"})
    assert made.status_code == 201
    assert made.json() | {"id": 0} == {
        "id": 0,
        "job_id": job.pk,
        "selector": "",
        "percent": 99.0,
        "limit_ms": 45_000,
        "days": 30,
    }
    path = f"/objectives/{made.json()['id']}"
    assert api.post("/objectives", {"job_id": job.pk}).status_code == 422
    assert api.send("patch", path, {"percent": 99.9}).json()["percent"] == 99.9
    assert api.send("patch", path, {"percent": 100}).status_code == 422
    assert api.send("patch", path, {"selector": "a=b"}).status_code == 422
    assert [each["id"] for each in api.get("/objectives").json()["items"]] == [made.json()["id"]]
    assert api.send("delete", path).status_code == 204
    assert api.get(path).status_code == 404


def test_an_objective_for_labels(api: Caller) -> None:
    made = api.post("/objectives", {"selector": "team=air", "days": 7}).json()
    assert (made["selector"], made["job_id"]) == ("team=air", None)
    assert api.send("patch", f"/objectives/{made['id']}", {"selector": ""}).json()["selector"] == ""
    assert Objective.objects.get().selector == ""


def test_a_job_has_its_budget(api: Caller, job: Job, now: datetime) -> None:
    assert api.get(f"/jobs/{job.pk}").json()["budget"] is None
    make.make_objective(job, now, counted=1000, missed=12)
    budget = api.get(f"/jobs/{job.pk}").json()["budget"]
    assert (budget["counted"], budget["missed"], budget["left_percent"]) == (1000, 12, -20)
    assert api.get("/jobs").json()["items"][0]["budget"] == budget
