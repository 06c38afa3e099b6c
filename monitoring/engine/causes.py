"""Extract a readable sentence from an engine's error text: class names, a message, a Java or Python stack trace."""

from __future__ import annotations

import re

# "org.apache.flink.util.FlinkException: human text", possibly with several class names in front.
_CLASS_NAME = re.compile(r"^(?:[A-Za-z_$][\w$]*\.)+([A-Za-z_$][\w$]*): ")
_CLASS_ALONE = re.compile(r"^(?:[A-Za-z_$][\w$]*\.)+([A-Za-z_$][\w$]*):?$")
_CAUSED_BY = "Caused by: "
_TRACEBACK = "Traceback (most recent call last):"
# The first line after a Python traceback's frames that is not indented: the exception's name and its text.
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*(?:: .*)?)$")
_LIMIT = 1000


def human(text: str) -> str:
    """Return the first line without class names, at most 1,000 characters.

    If the rest is a single word, the last class name stays in front of it.
    """
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = line.removeprefix("<Exception on server side:").strip()
    said_by = ""
    while match := _CLASS_NAME.match(line):
        said_by, line = match.group(1), line[match.end() :]
    if said_by and " " not in line:
        line = f"{said_by}: {line}"  # a path or a name without its exception class explains nothing
    if alone := _CLASS_ALONE.match(line):
        line = alone.group(1)
    return _shortened(line)


def _shortened(line: str) -> str:
    return line if len(line) <= _LIMIT else line[: _LIMIT - 1] + "…"


def root_cause(stacktrace: str) -> str:
    """Return the program's Python exception, or else the innermost cause of a Java stack trace.

    The outer exceptions only say where the error occurred.
    """
    _, found, after = stacktrace.rpartition(_TRACEBACK)
    raised = next((match for line in after.splitlines() if (match := _RAISED.match(line))), None) if found else None
    if raised is not None:
        return _shortened(raised.group(1))
    causes = [line for line in stacktrace.splitlines() if line.lstrip().startswith(_CAUSED_BY)]
    return human(causes[-1].lstrip().removeprefix(_CAUSED_BY)) if causes else human(stacktrace)


def from_errors(errors: object) -> str:
    """Return the message in an error body's `errors` list with its innermost cause, "" if the list has no text.

    The list of a status 500 has "Internal server error." first, and the actual error second.
    """
    if not isinstance(errors, list):
        return ""
    texts = [text for text in errors if isinstance(text, str) and text.strip()]
    if len(texts) > 1 and texts[0].startswith("Internal server error"):
        return root_cause(texts[1].removeprefix("<Exception on server side:\n")) or human(texts[0])
    if not texts:
        return ""
    said, cause = human(texts[0]), root_cause(texts[0])
    return said if cause in said else f"{said.rstrip('.')}: {cause}"
