"""The web process is killed after the engine acted and before the engine answered. The audit log has the request."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from monitoring.models import AuditEntry, Cluster, IdempotentAnswer, Job, Run
from tests.dashboard import builders as make
from tests.dashboard.api.conftest import Caller

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).parents[3]
KEY = {"Idempotency-Key": "one"}
CALL = """
import json, os, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "dashboard.settings"
django.setup()
from django.test import Client
path, headers, body, kind = json.loads(sys.argv[1])
if kind == "program":
    from django.core.files.uploadedfile import SimpleUploadedFile
    sent = {"data": {"program": SimpleUploadedFile("flights.py", b"print()")}}
else:
    sent = {"data": body, "content_type": "application/json"}
answer = Client(SERVER_NAME="127.0.0.1").post("/api/v1" + path, headers=headers, **sent)
print(answer.status_code, answer.content)
"""


class Engine:
    """An engine that carries out a request and then kills the client's process, if `kills` is True."""

    def __init__(self, server: HTTPServer) -> None:
        self.asked: list[str] = []
        self.kills = True
        self.caller: subprocess.Popen[str] | None = None
        server.expect_request("/jars/upload").respond_with_handler(self.answer)
        server.expect_request(re.compile(".*"), method="PATCH").respond_with_handler(self.answer)

    def answer(self, request: Request) -> Response:
        self.asked.append(f"{request.method} {request.path}")
        if self.kills:
            assert self.caller is not None
            os.kill(self.caller.pid, signal.SIGKILL)
        body = {"filename": "/up/9e_flights.py", "status": "success"} if request.method == "POST" else {}
        return Response(json.dumps(body), 200 if request.method == "POST" else 202)


@pytest.fixture
def engine(job: Job, httpserver: HTTPServer) -> Engine:
    Cluster.objects.update(rest_url=httpserver.url_for("/").rstrip("/"))
    return Engine(httpserver)


def call_and_kill_process(engine: Engine, caller: Caller, path: str, kind: str = "") -> None:
    """Call the API with the idempotency key in another process, which is killed."""
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}")
    given = json.dumps([path, caller.headers | KEY, {}, kind])
    engine.caller = subprocess.Popen(
        [sys.executable, "-c", CALL, given],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": database.geturl(), "REDIS_URL": settings.CELERY_BROKER_URL},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output, _ = engine.caller.communicate(timeout=240)
    assert engine.caller.returncode == -signal.SIGKILL, output


def audited_actions() -> list[str]:
    return list(AuditEntry.objects.filter(action__startswith="job.").order_by("id").values_list("action", flat=True))


def test_keyed_cancel_is_audited_and_bound_to_its_run(api: Caller, job: Job, engine: Engine, now: datetime) -> None:
    run = job.current_run
    assert run is not None
    call_and_kill_process(engine, api, f"/jobs/{job.pk}/cancel")
    assert (audited_actions(), len(engine.asked)) == (["job.cancel"], 1)
    assert AuditEntry.objects.get(action="job.cancel").details["engine_job_id"] == run.engine_job_id
    # The repeated request does not cancel the run that has started meanwhile.
    engine.kills = False
    Run.objects.filter(pk=run.pk).update(state="CANCELED")
    make.make_run(job, now)
    again = api.post(f"/jobs/{job.pk}/cancel", {}, **KEY)
    assert (again.status_code, again.json()["id"]) == (202, run.pk)
    assert len(engine.asked) == 1
    assert api.post(f"/jobs/{job.pk}/cancel", {}, **KEY).headers["Idempotency-Replayed"] == "true"


def test_cancel_is_sent_again_if_the_run_continues(api: Caller, job: Job, engine: Engine) -> None:
    call_and_kill_process(engine, api, f"/jobs/{job.pk}/cancel")
    engine.kills = False
    assert api.post(f"/jobs/{job.pk}/cancel", {}, **KEY).status_code == 202
    assert len(engine.asked) == 2
    assert audited_actions() == ["job.cancel", "job.cancel", "job.cancel-taken"]


def test_keyed_upload_is_audited(caller_of: Callable[..., Caller], job: Job, engine: Engine) -> None:
    admin = caller_of(User.objects.create_user("anna", is_staff=True, is_superuser=True))
    call_and_kill_process(engine, admin, f"/jobs/{job.pk}/programs", "program")
    assert (audited_actions(), len(engine.asked)) == (["job.program-sent"], 1)
    assert IdempotentAnswer.objects.get().status is None
