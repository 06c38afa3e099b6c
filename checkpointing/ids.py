"""IDs in Flink's form: 32 lower-case hexadecimal digits."""

from __future__ import annotations

import hashlib
import re
import uuid

_HEX_ID = re.compile(r"[0-9a-f]{32}")


def new_id() -> str:
    return uuid.uuid4().hex


def stable_id(*parts: str) -> str:
    """Return the same ID for the same parts in every run, because vertex IDs must survive a restart."""
    return hashlib.md5("\x00".join(parts).encode(), usedforsecurity=False).hexdigest()


def is_id(text: str) -> bool:
    return _HEX_ID.fullmatch(text) is not None
