"""Loading a user's program: `module:function` out of a `.py` file or a `.zip` of them.

Every way in which a program can be unfit ends in a ProgramError whose text says, in plain words, what is wrong with it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import shutil
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from checkpointing.spark.mistakes import may_pass


class ProgramError(Exception):
    """The program cannot be run as it is: starting it again would change nothing."""


@dataclass(frozen=True)
class Program:
    """`path` is what Spark's Python workers must import the program's modules from."""

    function: Callable[[Any, dict[str, str]], Any]
    path: Path
    entry_class: str


def load_program(program_path: Path, entry_class: str, import_directory: Path) -> Program:
    """The function that `entry_class` (`module:function` or `module.py:function`) names.

    `import_directory` is the attempt's own: a single file is copied there under its module's name, because an uploaded
    file carries another name and Spark's workers import functions by module.
    """
    module_name, function_name = _split_entry(entry_class)
    path = _importable(program_path, module_name, import_directory)
    sys.path.insert(0, str(path if path.suffix == ".zip" else path.parent))
    importlib.invalidate_caches()
    module = _import(module_name, path)
    return Program(_function(module, function_name), path, entry_class)


def _split_entry(entry_class: str) -> tuple[str, str]:
    module, separator, function = entry_class.partition(":")
    module = module.removesuffix(".py")
    if not separator or not all(part.isidentifier() for part in [*module.split("."), function]):
        raise ProgramError(f"{entry_class!r} does not name a function; write module:function, such as wordcount:main")
    return module, function


def _importable(program_path: Path, module_name: str, import_directory: Path) -> Path:
    if not program_path.is_file():
        raise ProgramError(f"the program file {program_path} does not exist")
    if program_path.suffix == ".zip":
        if not zipfile.is_zipfile(program_path):
            raise ProgramError(f"{program_path.name} is not a zip archive")
        return program_path
    if program_path.suffix != ".py":
        raise ProgramError(f"{program_path.name} is neither a .py file nor a .zip of them")
    if "." in module_name:
        raise ProgramError(f"{program_path.name} is a single file and has no package {module_name!r}; upload a .zip")
    import_directory.mkdir(parents=True, exist_ok=True)
    target = import_directory / f"{module_name}.py"
    shutil.copyfile(program_path, target)
    return target


def _import(module_name: str, path: Path) -> ModuleType:
    already = sys.modules.get(module_name)
    if already is not None:
        raise ProgramError(f"the module name {module_name!r} is taken by {_origin(already)}; rename the program")
    try:
        module = importlib.import_module(module_name)
    except (KeyboardInterrupt, SystemExit) as error:
        raise ProgramError(f"{module_name} does not import: it ends the process ({error!r})") from error
    except Exception as error:
        if may_pass(error):
            raise
        raise ProgramError(f"{module_name} does not import: {type(error).__name__}: {error}") from error
    if not _origin(module).startswith(str(path if path.suffix == ".zip" else path.parent)):
        raise ProgramError(f"{path.name} has no module {module_name!r}; the one found is {_origin(module)}")
    return module


def _origin(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or "a built-in module")


def _function(module: ModuleType, name: str) -> Callable[[Any, dict[str, str]], Any]:
    function = getattr(module, name, None)
    if not callable(function):
        there = sorted(
            each
            for each, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not each.startswith("_")
        )
        names = ", ".join(there) if there else "none"
        found = f", only {_described(function)} of that name" if hasattr(module, name) else ""
        raise ProgramError(f"{module.__name__} has no function {name!r}{found}; functions there: {names}")
    try:
        inspect.signature(function).bind(None, {})
    except TypeError as error:
        raise ProgramError(
            f"{module.__name__}:{name}{inspect.signature(function)} cannot be called as {name}(spark, args): {error}"
        ) from error
    checked: Callable[[Any, dict[str, str]], Any] = function
    return checked


def parse_arguments(program_args: Sequence[str]) -> dict[str, str]:
    """`--key value` and `--key=value` as a dictionary; a key without a value is "true", as in Flink's ParameterTool."""
    arguments: dict[str, str] = {}
    rest = list(program_args)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or word == "--":
            raise ProgramError(f"program argument {word!r} has no name; write --name value")
        key, separator, value = word[2:].partition("=")
        if not separator:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        arguments[key] = value
    return arguments


def call_program(program: Program, spark: Any, arguments: dict[str, str]) -> Any:
    """What the program returns; whatever it raises, but an attempt to end the process is a ProgramError."""
    try:
        return program.function(spark, arguments)
    except (KeyboardInterrupt, SystemExit) as error:
        raise ProgramError(f"{program.entry_class} ends the process ({error!r}) instead of returning") from error


def guard_batch_functions(before_batch: Callable[[Any, int], None] = lambda frame, batch: None) -> None:
    """Make an attempt to end the process within a foreachBatch function an exception of its batch.

    py4j hands on exceptions and nothing else: the batch would wait for ever for a thread that is gone. `before_batch`
    is called with what the function is called with, on its thread, before it.
    """
    from pyspark.sql.utils import ForeachBatchFunction

    plain = ForeachBatchFunction.__init__
    if hasattr(plain, "before_batch"):
        plain.before_batch = before_batch
        return

    def guarded(self: Any, session: Any, function: Callable[[Any, int], None]) -> None:
        plain(self, session, _without_exit(function, guarded.before_batch))  # type: ignore[attr-defined]

    guarded.before_batch = before_batch  # type: ignore[attr-defined]
    ForeachBatchFunction.__init__ = guarded


def _without_exit(
    function: Callable[[Any, int], None], before_batch: Callable[[Any, int], None]
) -> Callable[[Any, int], None]:
    @functools.wraps(function)
    def call(frame: Any, batch: int) -> None:
        before_batch(frame, batch)
        try:
            function(frame, batch)
        except (KeyboardInterrupt, SystemExit) as error:
            raise ProgramError(
                f"the function of foreachBatch ends the process ({error!r}) instead of returning"
            ) from error

    return call


def as_writers(returned: Any, entry_class: str) -> list[Any]:
    """What the program returned, as a list of DataStreamWriters."""
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    writers = list(returned) if isinstance(returned, list | tuple) else [returned]
    for writer in writers:
        if isinstance(writer, StreamingQuery):
            raise ProgramError(f"{entry_class} returned a query that it started itself; leave out .start()")
        if not isinstance(writer, DataStreamWriter):
            raise ProgramError(
                f"{entry_class} must return a DataStreamWriter or a list of them, it returned {_described(writer)}"
            )
    if not writers:
        raise ProgramError(f"{entry_class} returned an empty list: there is no query to run")
    return writers


def _described(value: Any) -> str:
    if value is None:
        return "nothing (None)"
    hint = "; end it with .writeStream" if type(value).__name__ == "DataFrame" else ""
    return f"a {type(value).__module__}.{type(value).__qualname__}{hint}"
