"""A directory of checkpoint locations in the API."""

from __future__ import annotations

from pathlib import Path

from monitoring.models import Cluster, Job, Savepoint
from tests.dashboard.api.conftest import Caller
from tests.dashboard.views.test_watched_directory import ONLY_SAVED, ONLY_WATCHED, location, poll


def test_a_watched_directory_is_added_and_shown_but_never_changed(admin_api: Caller, state_root: Path) -> None:
    location(state_root / "q").run(0, 4, source={"topic": 1})
    body = {"name": "lake", "discovery": "directory", "rest_url": str(state_root)}
    added = admin_api.post("/clusters", body)
    assert (added.status_code, added.json()["discovery"]) == (201, "directory")
    cluster = Cluster.objects.get()
    tested = admin_api.post(f"/clusters/{cluster.pk}/test").json()
    assert (tested["answers"], tested["sentence"]) == (True, "1 streaming query found")
    poll(4)
    job = Job.objects.get()
    run = admin_api.get(f"/runs/{job.current_run_id}").json()
    assert run["counts"] == {"total": 5, "in_progress": 0, "completed": 5, "failed": None, "restored": None}
    assert run["position"] == {"batch": 4, "watermark": None, "sources": ['{"topic": 1}']}
    for path, sent in (("savepoints", {}), ("cancel", {"reason": "x"}), ("restart", {"state": "savepoint-1"})):
        answer = admin_api.post(f"/jobs/{job.pk}/{path}", sent)
        assert answer.status_code in (409, 422), (path, answer.content)
        assert ONLY_WATCHED in answer.content.decode(), path


def test_a_directory_outside_the_state_roots_is_refused(admin_api: Caller, state_root: Path) -> None:
    answer = admin_api.post("/clusters", {"name": "lake", "discovery": "directory", "rest_url": "/etc"})
    assert answer.status_code == 422
    assert "WAYMARK_STATE_ROOTS" in answer.content.decode()


def test_a_query_is_saved_if_there_is_a_directory_for_savepoints(admin_api: Caller, state_root: Path) -> None:
    location(state_root / "lake/q").run(0, 4)
    target = f"{state_root}/savepoints"
    body = {"name": "lake", "discovery": "directory", "rest_url": f"{state_root}/lake", "savepoint_target": target}
    assert admin_api.post("/clusters", body).json()["savepoint_target"] == target
    poll(4)
    job = Job.objects.get()
    saved = admin_api.post(f"/jobs/{job.pk}/savepoints", {})
    assert saved.status_code == 202, saved.content
    assert (Savepoint.objects.get().job, Savepoint.objects.get().stops_job) == (job, False)
    answer = admin_api.post(f"/jobs/{job.pk}/cancel", {"reason": "x"})
    assert ONLY_SAVED in answer.content.decode()
    cluster = Cluster.objects.get()
    changed = admin_api.send("patch", f"/clusters/{cluster.pk}", {"savepoint_target": f"{state_root}/lake/savepoints"})
    assert (changed.status_code, "is in the watched directory" in changed.content.decode()) == (422, True)
    assert admin_api.send("patch", f"/clusters/{cluster.pk}", {"savepoint_target": ""}).json()["savepoint_target"] == ""


def test_the_directory_for_savepoints_belongs_only_to_watched_directories(admin_api: Caller, state_root: Path) -> None:
    body = {"name": "agents", "discovery": "agent", "savepoint_target": f"{state_root}/savepoints"}
    assert admin_api.post("/clusters", body).json()["savepoint_target"] == ""
