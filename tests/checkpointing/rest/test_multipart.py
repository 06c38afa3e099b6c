from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpointing.rest.errors import RestError
from checkpointing.rest.requests import uploaded_file

TYPE = "multipart/form-data; boundary=frontier"


def form(*parts: tuple[str, str | None, bytes]) -> bytes:
    body = b""
    for field, name, content in parts:
        file = f'; filename="{name}"' if name else ""
        body += (
            f'--frontier\r\nContent-Disposition: form-data; name="{field}"{file}\r\n\r\n'.encode() + content + b"\r\n"
        )
    return body + b"--frontier--\r\n"


@given(st.binary(max_size=2000).filter(lambda content: b"--frontier" not in content))
def test_any_bytes_are_received_unchanged(content: bytes) -> None:
    assert uploaded_file(TYPE, form(("jarfile", "a.zip", content)), "jarfile").content == content


def test_the_named_field_wins_over_others() -> None:
    body = form(("note", None, b"hi"), ("other", "b.py", b"b"), ("jarfile", "a.py", b"a"))

    assert uploaded_file(TYPE, body, "jarfile").name == "a.py"


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", b""),
        (TYPE, b""),
        (TYPE, form(("jarfile", None, b"no file"))),
        (TYPE, form(("a", "a.py", b""), ("b", "b.py", b""))),
    ],
)
def test_body_without_exactly_one_file_is_refused(content_type: str, body: bytes) -> None:
    with pytest.raises(RestError) as error:
        uploaded_file(content_type, body, "jarfile")

    assert error.value.status == 400
