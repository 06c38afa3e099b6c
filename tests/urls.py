"""Reads URLs without any client of ours."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping


def read(url: str, headers: Mapping[str, str] | None = None, timeout_s: float = 30.0) -> bytes:
    """Return the body. Raise HTTPError with the answer's text as a note, closed: otherwise its socket would be
    collected, with a warning, in any later test.
    """
    request = urllib.request.Request(url, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            error.add_note(error.read().decode(errors="replace"))
        raise
