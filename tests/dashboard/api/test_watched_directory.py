"""A directory of checkpoint locations in the API."""

from __future__ import annotations

from pathlib import Path

from monitoring.models import Cluster, Job
from tests.dashboard.api.conftest import Caller
from tests.dashboard.views.test_watched_directory import ONLY_WATCHED, location, poll


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
