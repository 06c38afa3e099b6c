"""Tell mistakes of a program, which a restart cannot correct, from causes that pass."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JError

# Libraries for Kafka, databases and HTTP have exceptions of their own for a server that is away.
_SERVER_IS_AWAY = re.compile(r"Timeout|Connection|Unavailable|OperationalError|NoBrokers|Network|Rpc|Transport|Throttl")
_JVM_CANNOT_REACH = re.compile(
    r"\bjava\.(?:net|io|nio|rmi)\.(?:\w+\.)*\w*(?:Exception|Error)\b|\bjava\.sql\.SQL\w*|TimeoutException"
)
# A path may be missing because its file system is not mounted.
_MAY_APPEAR = re.compile(r"\[(?:PATH_NOT_FOUND|UNABLE_TO_INFER_SCHEMA)\]")
_NO_CONNECTOR = re.compile(
    r"DATA_SOURCE_NOT_FOUND|ClassNotFoundException|NoClassDefFoundError|UnsupportedFileSystemException"
    r"|No FileSystem for scheme|No suitable driver"
)


def is_mistake(error: Exception, calls_program: Callable[..., Any]) -> bool:
    """Return whether the program itself is wrong: its code, arguments, queries or connectors.

    `error` was raised before the driver was RUNNING; `calls_program` is the function that calls the program. An unknown
    failure of Spark is no mistake: it may pass.
    """
    from pyspark.errors import AnalysisException, IllegalArgumentException, UnsupportedOperationException
    from pyspark.errors.exceptions.captured import CapturedException

    said = str(error) + str(getattr(error, "_stackTrace", None) or "")
    if isinstance(error, CapturedException | Py4JError):
        if _NO_CONNECTOR.search(said):
            return True
        if _MAY_APPEAR.search(said) or _JVM_CANNOT_REACH.search(said):
            return False
        return isinstance(error, AnalysisException | IllegalArgumentException | UnsupportedOperationException)
    code = calls_program.__code__
    is_raised_by_program = any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))
    return is_raised_by_program and not may_pass(error)


def may_pass(error: BaseException) -> bool:
    """Return whether a server, file system or memory that is away has to do with `error`."""
    return any(
        isinstance(each, OSError | MemoryError | Py4JError)
        or any(_SERVER_IS_AWAY.search(kind.__name__) for kind in type(each).__mro__)
        for each in _chain(error)
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
