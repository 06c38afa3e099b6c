"""The one file of a multipart/form-data body, parsed with the standard library's mail parser."""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP

from checkpointing.rest.errors import bad_request


@dataclass(frozen=True)
class UploadedFile:
    name: str
    content: bytes


def uploaded_file(content_type: str, body: bytes, field: str) -> UploadedFile:
    """The file in the form field `field`; of several files without that name the only one. RestError 400 otherwise."""
    if not content_type.lower().startswith("multipart/form-data") or "boundary=" not in content_type.lower():
        raise bad_request(f"A multipart/form-data body with the file in the field {field!r} is expected.")
    head = b"Content-Type: " + content_type.encode("latin-1") + b"\r\nMIME-Version: 1.0\r\n\r\n"
    form = BytesParser(policy=HTTP).parsebytes(head + body)
    files = [part for part in _parts(form) if part.get_filename()]
    named = [part for part in files if part.get_param("name", header="content-disposition") == field]
    if len(named or files) != 1:
        raise bad_request(f"Exactly 1 file must be sent, in the field {field!r}; received {len(files)}.")
    part = (named or files)[0]
    content = part.get_payload(decode=True)
    return UploadedFile(str(part.get_filename()), content if isinstance(content, bytes) else b"")


def _parts(form: Message) -> list[Message]:
    return [part for part in form.walk() if not part.is_multipart()] if form.is_multipart() else []
