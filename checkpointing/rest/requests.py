"""Reads requests: path parameters, bodies of a limited size, uploaded files. Each error names the field."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

from starlette.requests import ClientDisconnect, Request

from checkpointing.ids import is_id, new_id
from checkpointing.rest.errors import RestError, bad_request

MAX_JSON_BYTES = 1 << 20
JSON = "application/json"
_FLAGS = {"true": True, "false": False}
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")


def path_id(request: Request, name: str) -> str:
    """Return the 32 hexadecimal digits of a path parameter."""
    text = str(request.path_params[name])
    if not is_id(text):
        raise _unparsed(name, text)
    return text


def path_number(request: Request, name: str) -> int:
    text = str(request.path_params[name])
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise _unparsed(name, text)
    return int(text)


def query_number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise bad_request(f"{name}: {text!r} is not allowed; a whole number is expected")
    return int(text)


def _unparsed(name: str, text: str) -> Exception:
    return bad_request(
        f'Bad request, could not parse parameters: Cannot resolve path parameter ({name}) from value "{text}".'
    )


async def json_body(request: Request) -> Mapping[str, Any]:
    """Return the body's JSON object, {} for an empty body. The caller ignores unknown keys, as Flink does.

    A body of another content type is refused: a web page of any site can make a browser send a form, but not JSON.
    """
    content = await limited_body(request, MAX_JSON_BYTES, f"The body is larger than {MAX_JSON_BYTES} bytes.")
    if not content.strip():
        return {}
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != JSON:
        raise RestError(415, f"Content-Type: {content_type!r} is not allowed; {JSON} is expected")
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"Bad request received: the body is not JSON ({error}).") from error
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        # An unpaired surrogate would break every response that contains it.
        character = f"\\u{ord(error.object[error.start]):04x}"
        raise bad_request(f"Bad request received: the body contains an unpaired surrogate ({character}).") from error
    if not isinstance(body, dict):
        raise bad_request("Bad request received: the body is not a JSON object.")
    return body


async def limited_body(request: Request, limit: int, too_large: str) -> bytes:
    """Return the body.

    Raise RestError 413 with the text `too_large` as soon as more than `limit` bytes have arrived.
    """
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise RestError(413, too_large)
        chunks.append(chunk)
    return b"".join(chunks)


async def discard_body(request: Request, limit: int) -> None:
    """Read up to `limit` bytes of an unused body before an error is answered.

    If the server closes the connection while a client is still sending, the client sees a broken connection instead of
    the answer, and retries.
    """
    size = 0
    with contextlib.suppress(ClientDisconnect):
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                return


def text_field(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_request(f"{name}: {value!r} is not allowed; a text is expected")
    return value or None


def flag_field(body: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    """Return a boolean field. Like Flink, accept the texts `true` and `false`, too."""
    value = body.get(name)
    if value is None or value == "":
        return default
    if isinstance(value, str) and value.lower() in _FLAGS:
        return _FLAGS[value.lower()]
    if not isinstance(value, bool):
        raise bad_request(f"{name}: {value!r} is not allowed; true or false is expected")
    return value


def whole_number(value: object) -> int | None:
    """Return the whole number in a JSON value, which may be a text as in Flink, or None."""
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def id_field(body: Mapping[str, Any], name: str) -> str:
    """Return the ID in the body, or a new one."""
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


@dataclass(frozen=True)
class UploadedFile:
    name: str
    content: bytes


def uploaded_file(content_type: str, body: bytes, field: str) -> UploadedFile:
    """Return the file in the form field `field`, else the only file of the body. Raise RestError 400 if there is none.

    The standard library's mail parser reads multipart/form-data.
    """
    if not content_type.lower().startswith("multipart/form-data") or "boundary=" not in content_type.lower():
        raise bad_request(f"A multipart/form-data body with the file in the field {field!r} is expected.")
    head = b"Content-Type: " + content_type.encode("latin-1") + b"\r\nMIME-Version: 1.0\r\n\r\n"
    form = BytesParser(policy=HTTP).parsebytes(head + body)
    parts = [part for part in form.walk() if not part.is_multipart()] if form.is_multipart() else []
    files = [part for part in parts if part.get_filename()]
    named = [part for part in files if part.get_param("name", header="content-disposition") == field]
    if len(named or files) != 1:
        raise bad_request(f"Exactly 1 file must be sent, in the field {field!r}; received {len(files)}.")
    part = (named or files)[0]
    content = part.get_payload(decode=True)
    return UploadedFile(str(part.get_filename()), content if isinstance(content, bytes) else b"")
