"""The messages between a driver and the job manager as JSON, and the errors of those that are malformed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checkpointing.model.messages import (
    MalformedMessage,
    Register,
    StateFile,
    Stop,
    decode,
    encode,
    from_plain,
    to_plain,
)

VERTEX = {"id": "v", "name": "window", "kind": "stateful", "parallelism": 2, "query": "q"}
STOP = {"type": "stop", "session_id": "s", "cause": "FOR_RESCALE"}


def text(**changed: Any) -> str:
    return json.dumps({name: value for name, value in {**STOP, **changed}.items() if value is not Ellipsis})


def test_a_message_is_the_same_after_its_way_over_the_wire() -> None:
    message = decode(text())
    assert isinstance(message, Stop)
    assert json.loads(encode(message)) == STOP
    assert decode(encode(message)) == message


def test_unknown_fields_are_ignored_and_missing_ones_have_their_default() -> None:
    assert decode(text(later="x", cause=...)) == Stop("s")


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("{", "not JSON: "),
        ("[]", "a message is a JSON object"),
        (text(type="hello"), "type: 'hello' is not a message of this protocol"),
        (text(session_id=...), "Stop.session_id is missing"),
        (text(session_id=7), "Stop.session_id: str is expected, not 7"),
        (text(session_id=None), "Stop.session_id: str is expected, not None"),
        (
            text(cause="LATER"),
            "Stop.cause: 'LATER' is not one of ['BY_ITSELF', 'AFTER_SAVEPOINT', 'FOR_RESCALE']",
        ),
    ],
)
def test_an_error_names_the_field_the_value_and_what_is_allowed(message: str, problem: str) -> None:
    with pytest.raises(MalformedMessage) as refused:
        decode(message)
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"vertices": [VERTEX, VERTEX | {"parallelism": True}]}, "Vertex.parallelism: int is expected, not True"),
        ({"vertices": [VERTEX | {"after_restore": "never"}]}, "Vertex.after_restore: 'never' is not one of ["),
        ({"vertices": [{"id": "v"}]}, "Vertex.name is missing"),
        ({"vertices": ["v"]}, "Register.vertices: an object is expected, not 'v'"),
        ({"vertices": "v"}, "Register.vertices: a list is expected, not 'v'"),
        ({"last_batches": {"q": "7"}}, "Register.last_batches.q: int is expected, not '7'"),
        ({"last_batches": []}, "Register.last_batches: an object is expected, not []"),
    ],
)
def test_an_error_names_the_innermost_field(changed: dict[str, Any], problem: str) -> None:
    register = {"type": "register", "job_id": "j", "attempt": 1, "pid": 7, "state": "RUNNING", "vertices": [VERTEX]}
    register |= {"last_batches": {"q": 7}}
    assert isinstance(decode(json.dumps(register)), Register)
    with pytest.raises(MalformedMessage) as refused:
        decode(json.dumps(register | changed))
    assert str(refused.value).startswith(problem)


def test_a_stored_object_is_the_same_as_before() -> None:
    file = StateFile("a", "b", 1, "c")
    assert to_plain(file) == {"path": "a", "location": "b", "size": 1, "checksum": "c", "shared": False}
    assert from_plain(StateFile, to_plain(file)) == file


def test_half_a_character_becomes_a_question_mark() -> None:
    assert decode(text(session_id="\ud83d")) == decode(text(session_id="?"))
