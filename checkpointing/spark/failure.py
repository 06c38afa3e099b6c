"""Turns failures into entries of `/jobs/:id/exceptions`, with the user's own exception where possible."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from checkpointing.masking import HIDDEN
from checkpointing.model.messages import ExceptionInfo
from checkpointing.spark.program import ScriptExited
from checkpointing.spark_internals import java_stack_trace

_TRACEBACK = "Traceback (most recent call last):"
# The last line of a Python traceback: the exception's name, dotted or not, and its text.
_RAISED = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
# The pattern for the end of the user's message, where Spark's text continues.
_JVM_AGAIN = re.compile(r"^\s*(?:SQLSTATE: \w{5}\s*$|\tat )|^=== Streaming Query ===", re.MULTILINE)
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w{5}\s*$")
_LOST_TASK = re.compile(r"Lost task (?P<task>\d+)\.\d+ in stage (?P<stage>\d+)\.\d+")
# The text before the actual error, in which py4j names its call.
_PY4J_SAYS = re.compile(r"\AAn error occurred while calling \S+\.\n: ")
_CAUSED_BY = re.compile(r"^Caused by: (?P<cause>.+)$", re.MULTILINE)
_DEEPEST = 32
# In characters, because a program may put a whole table into its message.
_LONGEST_MESSAGE = 4_000
_LONGEST_STACK = 100_000


def of_exception(error: BaseException, timestamp: int, *, recoverable: bool = True) -> ExceptionInfo:
    """Return the entry for an exception that was raised in this process."""
    ends_by_choice = isinstance(error, ScriptExited)  # such as argparse; no frame is of the script
    lines = traceback.format_exception_only(error) if ends_by_choice else traceback.format_exception(error)
    text = _clipped("".join(lines), _LONGEST_STACK)
    message = _clipped(_message_of(error), _LONGEST_MESSAGE)
    return ExceptionInfo(type(error).__name__, message, text, timestamp, recoverable=recoverable)


def without_secrets(info: ExceptionInfo, secrets: Iterable[str]) -> ExceptionInfo:
    """Return the failure without these texts, because a connector's message may quote the rejected password."""
    message, stacktrace = info.message, info.stacktrace
    for secret in secrets:
        message, stacktrace = message.replace(secret, HIDDEN), stacktrace.replace(secret, HIDDEN)
    return replace(info, message=message, stacktrace=stacktrace)


def _message_of(error: BaseException) -> str:
    """Return the exception's message. For a Java exception, omit the stack, but add the innermost cause."""
    text = _PY4J_SAYS.sub("", str(error).strip())
    causes = _CAUSED_BY.findall(text + java_stack_trace(error))
    said = _without_sql_state(text.partition("\n\nJVM stacktrace:")[0].partition("\n\tat ")[0])
    if causes and causes[-1].partition(": ")[2] not in said:
        said = f"{said}\nCaused by: {causes[-1]}"
    return _message_with_name(type(error).__name__, said)


def _message_with_name(name: str, message: str) -> str:
    """Return the message. Prefix it with the name if it says too little: a KeyError's message is only the key."""
    return message if message and name != "KeyError" else f"{name}: {message}".removesuffix(": ")


def of_query(query_name: str, java_exception: Any, timestamp: int) -> ExceptionInfo:
    """Return the entry for a query that died. `java_exception` is py4j's view of its StreamingQueryException."""
    chain = list(_causes(java_exception))
    stack = _java_stack(java_exception)
    texts = [str(each.getMessage() or "") for each in chain]
    user = next((found for text in texts if (found := user_exception(text))), None)
    root = chain[-1]
    name, message = user or (str(root.getClass().getSimpleName()), _without_sql_state(texts[-1]))
    task = _task_name(query_name, stack)
    shown = _clipped(stack, _LONGEST_STACK)
    return ExceptionInfo(name, _clipped(message, _LONGEST_MESSAGE), shown, timestamp, task_name=task)


def _clipped(text: str, longest: int) -> str:
    """Shorten a long text in the middle, because the cause of an error is at one of the ends."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


def user_exception(text: str) -> tuple[str, str] | None:
    """Return name and message of the Python exception with the last traceback in `text`, or None if there is none."""
    start = text.rfind(_TRACEBACK)
    if start < 0:
        return None
    lines = text[start:].splitlines()[1:]
    for number, line in enumerate(lines):
        match = _RAISED.match(line)
        if match is not None:
            more = _JVM_AGAIN.split("\n".join(lines[number + 1 :]), maxsplit=1)[0]
            message = "\n".join([match["message"] or "", more]).strip()
            name = match["name"].rpartition(".")[2]
            return name, _message_with_name(name, _without_sql_state(message))
    return None


def _without_sql_state(text: str) -> str:
    text = text.partition("=== Streaming Query ===")[0]
    while (shorter := _SQL_STATE.sub("", text)) != text:
        text = shorter
    return text.strip()


def _causes(java_exception: Any) -> Iterator[Any]:
    each, depth = java_exception, 0
    while each is not None and depth < _DEEPEST:
        yield each
        each, depth = each.getCause(), depth + 1


def _java_stack(java_exception: Any) -> str:
    """Return the stack as Java prints it, with Python's traceback."""
    lines = []
    for number, each in enumerate(_causes(java_exception)):
        lines.append(("Caused by: " if number else "") + str(each.toString()))
        lines += [f"\tat {frame.toString()}" for frame in list(each.getStackTrace())[:40]]
    return "\n".join(lines)


def _task_name(query_name: str, stack: str) -> str | None:
    match = _LOST_TASK.search(stack)
    return f"{query_name}: task {match['task']} of stage {match['stage']}" if match else None
