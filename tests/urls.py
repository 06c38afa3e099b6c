"""Read URLs without the product's clients."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping


def read(url: str, headers: Mapping[str, str] | None = None, timeout_s: float = 30.0) -> bytes:
    """Return the body of a URL.

    Raises:
        HTTPError: it has the text of the response as a note, and is closed. Otherwise a later test would get a warning
            about its socket.
    """
    request = urllib.request.Request(url, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            error.add_note(error.read().decode(errors="replace"))
        raise
