"""Reading requests: path parameters and JSON bodies, each checked with an answer that names the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from checkpointing.ids import is_id, new_id
from checkpointing.rest.errors import bad_request


def path_id(request: Request, name: str) -> str:
    """The 32 hexadecimal digits of a path parameter."""
    text = str(request.path_params[name])
    if not is_id(text):
        raise _unparsed(name, text)
    return text


def path_number(request: Request, name: str) -> int:
    text = str(request.path_params[name])
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise _unparsed(name, text)
    return int(text)


def _unparsed(name: str, text: str) -> Exception:
    return bad_request(
        f'Bad request, could not parse parameters: Cannot resolve path parameter ({name}) from value "{text}".'
    )


async def json_body(request: Request) -> Mapping[str, Any]:
    """The body's JSON object, {} for an empty body. Unknown keys are the caller's to ignore, as Flink does."""
    content = await request.body()
    if not content.strip():
        return {}
    try:
        body = json.loads(content)
    except ValueError as error:
        raise bad_request(f"Bad request received: the body is not JSON ({error}).") from error
    if not isinstance(body, dict):
        raise bad_request("Bad request received: the body is not a JSON object.")
    return body


def text_field(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_request(f"{name}: {value!r} is not allowed; a text is expected")
    return value or None


def flag_field(body: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise bad_request(f"{name}: {value!r} is not allowed; true or false is expected")
    return value


def id_field(body: Mapping[str, Any], name: str) -> str:
    """The id that the client chose, or a new one."""
    value = text_field(body, name)
    if value is None:
        return new_id()
    if not is_id(value.lower()):
        raise bad_request(f"{name}: {value!r} is not allowed; 32 hexadecimal digits are expected")
    return value.lower()


def choice_field(body: Mapping[str, Any], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = text_field(body, name) or default
    if value.upper() not in allowed:
        raise bad_request(f"{name}: {value!r} is not allowed; {' or '.join(allowed)} is expected")
    return value.upper()
