"""The error answers of the REST API."""

from __future__ import annotations

import json

from checkpointing.jobs.continued_queries import AlreadyContinued
from checkpointing.model.status import JobStatus
from checkpointing.rest.errors import bad_request, refused


def test_an_answer_to_a_refused_value_has_its_code_and_arguments() -> None:
    error = AlreadyContinued("/data/words", "ab" * 16, "wordcount", JobStatus.RUNNING)
    response = refused("savepointPath", error).response()
    body = json.loads(bytes(response.body))
    assert response.status_code == 400
    assert body["errors"][0].endswith(f": savepointPath: {error}")
    assert body["refusal"] == {
        "code": "imports.continued",
        "args": {"location": "/data/words", "job": "wordcount", "id": "ab" * 16, "status": "RUNNING"},
    }


def test_other_errors_have_only_their_text() -> None:
    for error in (refused("savepointPath", ValueError("no")), bad_request("savepointPath: no")):
        assert list(json.loads(bytes(error.response().body))) == ["errors"]
