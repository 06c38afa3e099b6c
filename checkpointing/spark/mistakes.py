"""Distinguishes mistakes of a program, which a restart cannot correct, from causes that may pass."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JError

from checkpointing.spark.jvm import hadoop_path
from checkpointing.spark_internals import java_stack_trace

# Libraries for Kafka, databases and HTTP have their own exceptions for an unavailable server.
_SERVER_IS_AWAY = re.compile(r"Timeout|Connection|Unavailable|OperationalError|NoBrokers|Network|Rpc|Transport|Throttl")
_JVM_CANNOT_REACH = re.compile(
    r"\bjava\.(?:net|io|nio|rmi)\.(?:\w+\.)*\w*(?:Exception|Error)\b|\bjava\.sql\.SQL\w*|TimeoutException"
)
_CONNECTOR_CLASS_MISSING = re.compile(
    r"ClassNotFoundException|NoClassDefFoundError|UnsupportedFileSystemException"
    r"|No FileSystem for scheme|No suitable driver"
)


def is_mistake(error: Exception, calls_program: Callable[..., Any], spark: Any = None) -> bool:
    """Return whether the program itself is wrong: its code, arguments, paths, queries or connectors.

    `error` was raised before the driver was RUNNING; `calls_program` is the function that calls the program. An unknown
    failure of Spark does not count as a mistake, because it may pass.
    """
    from pyspark.errors.exceptions.captured import CapturedException

    if isinstance(error, CapturedException | Py4JError):
        return _is_user_error(error, spark)
    code = calls_program.__code__
    is_raised_by_program = any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))
    return is_raised_by_program and not may_pass(error)


def _is_user_error(error: Exception, spark: Any) -> bool:
    from pyspark.errors import AnalysisException, IllegalArgumentException, UnsupportedOperationException

    origin: Any = getattr(error, "java_exception", error)  # the Java exception has the error's condition
    match _error_condition(origin):
        case "DATA_SOURCE_NOT_FOUND":
            return True
        case "UNABLE_TO_INFER_SCHEMA":
            return False  # the first file of the source may still arrive
        case "PATH_NOT_FOUND":
            return spark is not None and _has_siblings(spark, str(origin.getMessageParameters()["path"]))
    said = str(error) + java_stack_trace(error)
    if _CONNECTOR_CLASS_MISSING.search(said):
        return True
    if _JVM_CANNOT_REACH.search(said):
        return False
    return isinstance(error, AnalysisException | IllegalArgumentException | UnsupportedOperationException)


def _error_condition(origin: Any) -> str:
    """Return Spark's name for the kind of error, or "" for errors without one, such as py4j's own."""
    try:
        return str(origin.getCondition() or "")
    except (AttributeError, Py4JError):
        return ""


def _has_siblings(spark: Any, location: str) -> bool:
    """Return whether the file system answers, and the parent directory of `location` has other entries.

    An empty or missing parent directory proves nothing, because a file system that is not mounted looks the same. Nor
    does a pattern, which may match later.
    """
    if set(location) & set("*?[{"):
        return False
    try:
        path, file_system = hadoop_path(spark, location)
        directory = path.getParent()
        return directory is not None and bool(file_system.listStatusIterator(directory).hasNext())
    except Py4JError:
        return False


def may_pass(error: BaseException) -> bool:
    """Return whether a retry may help: a server or file system is unavailable, or memory is short."""
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
