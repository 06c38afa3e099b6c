"""Loads a user's program from a `.py` file or a `.zip` of such files: a function (`module:function`), or a script.

A script is named by its file (`job.py`), or in a `.zip` by its module. It runs as `__main__`, as under spark-submit.
Every unfit program raises a ProgramError whose text says what is wrong with it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import shutil
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from checkpointing.model.driver_spec import is_script
from checkpointing.spark.mistakes import may_pass
from checkpointing.spark_internals import foreach_batch_class


class ProgramError(Exception):
    """The program cannot run as it is. A restart would not help."""


class ScriptExited(Exception):
    """The script ended with an exit code other than 0."""


@dataclass(frozen=True)
class Program:
    """A loaded program. Spark's Python workers import its modules from `path`.

    `function` takes the session and the arguments: a dictionary for a function, a list for a script.
    """

    function: Callable[[Any, Any], Any]
    path: Path
    entry_class: str

    @property
    def is_script(self) -> bool:
        return is_script(self.entry_class)


def load_program(program_path: Path, entry_class: str, import_directory: Path) -> Program:
    """Return the function or script that `entry_class` names.

    It has the form `module:function`, `module.py:function` or `script.py`. `import_directory` belongs to the attempt. A
    single file is copied there under its module's name, because an uploaded file has another name, and Spark's workers
    import functions by module.
    """
    if is_script(entry_class):
        return _load_script(program_path, entry_class, import_directory)
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
        raise ProgramError(f"{program_path.name} is neither a .py file nor a .zip of .py files")
    if "." in module_name:
        raise ProgramError(f"{program_path.name} is a single file and has no package {module_name!r}; upload a .zip")
    return _copied(program_path, import_directory / f"{module_name}.py")


def _copied(program_path: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(program_path, target)
    return target


def _load_script(program_path: Path, entry: str, import_directory: Path) -> Program:
    """Compile the script. Its functions reach Spark's workers by value, so its module need not be importable."""
    if not entry:
        raise ProgramError("the entry class is missing; write module:function, or script.py")
    path = _importable(program_path, "script", import_directory)
    if path.suffix == ".zip":
        code, file = _code_in_zip(path, entry.removesuffix(".py"))
        return Program(_as_main(code, file, entry.removesuffix(".py").rpartition(".")[0]), path, entry)
    path = path.rename(path.with_name(f"{entry.removesuffix('.py')}.py"))
    try:
        code = compile(path.read_bytes(), str(path), "exec")
    except (SyntaxError, ValueError) as error:
        raise ProgramError(f"{entry} does not compile: {type(error).__name__}: {error}") from error
    return Program(_as_main(code, str(path), None), path, entry)


def _code_in_zip(path: Path, module: str) -> tuple[CodeType, str]:
    sys.path.insert(0, str(path))
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(module)
        loader: Any = spec.loader if spec is not None else None
        code = loader.get_code(module) if loader is not None else None
    except (ImportError, SyntaxError, ValueError) as error:
        raise ProgramError(f"{module} in {path.name} cannot be run: {type(error).__name__}: {error}") from error
    if code is None or spec is None or not str(spec.origin).startswith(str(path)):
        raise ProgramError(f"{path.name} has no module {module!r}")
    return code, str(spec.origin)


def _as_main(code: CodeType, file: str, package: str | None) -> Callable[[Any, Sequence[str]], None]:
    def run(_: Any, arguments: Sequence[str]) -> None:
        main = ModuleType("__main__")
        main.__dict__.update(__file__=file, __package__=package)
        sys.modules["__main__"] = main
        sys.argv = [file, *arguments]
        try:
            exec(code, main.__dict__)  # noqa: S102 - the user's own program
        except SystemExit as end:
            if end.code not in (None, 0):
                raise ScriptExited(f"The script ended with exit code {end.code}; its output is in the log.") from end

    return run


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
    """Return `--key value` and `--key=value` as a dictionary. A key alone gets "true", as in Flink's ParameterTool."""
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


def call_program(program: Program, spark: Any, arguments: Any) -> Any:
    """Call the program and return its result. Turn an attempt to end the process into a ProgramError."""
    try:
        return program.function(spark, arguments)
    except (KeyboardInterrupt, SystemExit) as error:
        raise ProgramError(f"{program.entry_class} ends the process ({error!r}) instead of returning") from error


def guard_batch_functions(
    before_batch: Callable[[Any, int], None] = lambda frame, batch: None,
    on_error: Callable[[Exception], None] = lambda error: None,
) -> None:
    """Turn an attempt to end the process within a foreachBatch function into an exception of its batch.

    py4j passes on only exceptions; the batch would wait forever for a thread that has ended. `before_batch` gets the
    function's arguments on its thread before the call, `on_error` the exception that it raises.
    """
    batch_function = foreach_batch_class()
    plain = batch_function.__init__
    if hasattr(plain, "observers"):
        plain.observers = (before_batch, on_error)
        return

    def guarded(self: Any, session: Any, function: Callable[[Any, int], None]) -> None:
        plain(self, session, _without_exit(function, *guarded.observers))  # type: ignore[attr-defined]

    guarded.observers = (before_batch, on_error)  # type: ignore[attr-defined]
    batch_function.__init__ = guarded


def _without_exit(
    function: Callable[[Any, int], None],
    before_batch: Callable[[Any, int], None],
    on_error: Callable[[Exception], None],
) -> Callable[[Any, int], None]:
    @functools.wraps(function)
    def call(frame: Any, batch: int) -> None:
        before_batch(frame, batch)
        try:
            function(frame, batch)
        except (KeyboardInterrupt, SystemExit) as error:
            ends = ProgramError(f"the function of foreachBatch ends the process ({error!r}) instead of returning")
            on_error(ends)
            raise ends from error
        except Exception as error:
            on_error(error)
            raise

    return call


def as_writers(returned: Any, entry_class: str, started: Sequence[Any] = ()) -> list[Any]:
    """Return the DataStreamWriters that the program `started`, and then those that it returned."""
    if started:
        return [*started, *(each for each in returned_writers(returned) if not any(each is one for one in started))]
    if is_script(entry_class):
        raise ProgramError(f"{entry_class} ended without starting a streaming query: there is nothing to run")
    writers = returned_writers(returned)
    others = [each for each in _listed(returned) if not any(each is writer for writer in writers)]
    if others:
        raise ProgramError(
            f"{entry_class} must start a query, or return a DataStreamWriter or a list of them, "
            f"but it returned {_described(others[0])}"
        )
    if not writers:
        raise ProgramError(f"{entry_class} returned an empty list: there is no query to run")
    return writers


def returned_writers(returned: Any) -> list[Any]:
    """Return the DataStreamWriters among the results of a program."""
    from pyspark.sql.streaming import DataStreamWriter

    return [each for each in _listed(returned) if isinstance(each, DataStreamWriter)]


def _listed(returned: Any) -> list[Any]:
    return list(returned) if isinstance(returned, list | tuple) else [returned]


def _described(value: Any) -> str:
    if value is None:
        return "nothing (None)"
    hint = "; end it with .writeStream" if type(value).__name__ == "DataFrame" else ""
    return f"a {type(value).__module__}.{type(value).__qualname__}{hint}"
