"""Format an engine's exception as one line with its class, message and task."""

from __future__ import annotations

from collections.abc import Mapping

LONGEST_MESSAGE = 500


def exception_text(exception: Mapping[str, str]) -> str:
    """Return an entry of Run.exceptions as text: "java.lang.IllegalStateException: No disk (in count (1/2))"."""
    name, task = exception.get("name", ""), exception.get("task", "")
    message = exception.get("message", "").partition("\n")[0][:LONGEST_MESSAGE].rstrip(".")
    said = message if message.startswith(name) else f"{name}: {message}" if message else name
    return f"{said} (in {task})" if task else said
