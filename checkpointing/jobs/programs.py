"""Uploaded programs: where they lie, and whether a program could start at all (checked without running it).

A program is a `.py` file or a `.zip` of them. `entry_class` names its function: `module:function` (`wordcount:main`,
`jobs.wordcount:main`) or `file.py:function`.
"""

from __future__ import annotations

import ast
import os
import re
import uuid
import zipfile
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = (".py", ".zip")
_JAR_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}_[^/\\\x00]+\.(py|zip)")
_MAX_MODULE_BYTES = 16 * 1024 * 1024


class ProgramNotFound(LookupError):
    """No program of this id was uploaded."""


class InvalidProgram(ValueError):
    """The program cannot start; the text says what is wrong and what would be right."""


@dataclass(frozen=True)
class Program:
    jar_id: str
    name: str
    path: Path
    uploaded_ms: int


class ProgramStorage:
    """The uploads directory. Blocking."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def store(self, file_name: str, content: bytes) -> Program:
        """InvalidProgram when the name is no program's name."""
        name = Path(file_name.replace("\\", "/")).name
        if not name.endswith(SUFFIXES) or name in SUFFIXES:
            raise InvalidProgram(f"Only .py files and .zip files of them are allowed, not {file_name!r}.")
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{uuid.uuid4()}_{name}"
        partial = path.with_name(path.name + ".part")
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        return self.get(path.name)

    def get(self, jar_id: str) -> Program:
        """ProgramNotFound when there is none; an id never reaches outside the directory."""
        path = self._directory / jar_id
        if not _JAR_ID.fullmatch(jar_id) or not path.is_file():
            raise ProgramNotFound(f"Jar file {jar_id} does not exist")
        return Program(jar_id, jar_id.partition("_")[2], path, round(path.stat().st_mtime * 1000))

    def list(self) -> tuple[Program, ...]:
        """Newest first."""
        if not self._directory.is_dir():
            return ()
        found = [self.get(path.name) for path in self._directory.iterdir() if _JAR_ID.fullmatch(path.name)]
        return tuple(sorted(found, key=lambda program: program.uploaded_ms, reverse=True))

    def delete(self, jar_id: str) -> None:
        self.get(jar_id).path.unlink(missing_ok=True)


def check_program(program: Program, entry_class: str) -> None:
    """InvalidProgram unless the file parses and has the function at its top level."""
    module, function = split_entry_class(entry_class)
    source = _zipped_source(program, module) if program.path.suffix == ".zip" else _plain_source(program, module)
    tree = _parsed(source, _file_of(module))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if function in names or function in _bound_names(tree):
        return
    if any(isinstance(node, ast.AsyncFunctionDef) and node.name == function for node in tree.body):
        raise InvalidProgram(f"{_file_of(module)}: {function} is an async function; an ordinary one is expected.")
    public = sorted(name for name in names if not name.startswith("_"))
    raise InvalidProgram(
        f"{_file_of(module)} has no top-level function {function!r}; "
        + (f"it has {', '.join(public)}." if public else "it has no function at all.")
    )


def entry_functions(program: Program) -> tuple[str, ...]:
    """What a `.py` program offers as `entry_class`: its public top-level functions that take two arguments."""
    if program.path.suffix != ".py":
        return ()
    try:
        tree = _parsed(program.path.read_bytes(), program.name)
    except (InvalidProgram, OSError):
        return ()
    return tuple(
        f"{program.name}:{node.name}"
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and len(node.args.args) == 2
    )


def split_entry_class(entry_class: str) -> tuple[str, str]:
    """(dotted module, function) of `module:function` or `file.py:function`."""
    module, _, function = entry_class.partition(":")
    module = module.removesuffix(".py")
    if not all(part.isidentifier() for part in [*module.split("."), function]):
        raise InvalidProgram(f"entryClass: {entry_class!r} is not allowed; write module:function or file.py:function")
    return module, function


def _plain_source(program: Program, module: str) -> bytes:
    if module != program.name.removesuffix(".py"):
        raise InvalidProgram(f"entryClass names the module {module!r}, but the program is {program.name}")
    return program.path.read_bytes()


def _zipped_source(program: Program, module: str) -> bytes:
    path = module.replace(".", "/")
    try:
        with zipfile.ZipFile(program.path) as archive:
            for name in (f"{path}.py", f"{path}/__init__.py"):
                if name in archive.namelist():
                    if archive.getinfo(name).file_size > _MAX_MODULE_BYTES:
                        raise InvalidProgram(f"{name} in {program.name} is larger than {_MAX_MODULE_BYTES} bytes")
                    return archive.read(name)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise InvalidProgram(f"{program.name} is not a zip file that can be read: {error}") from error
    raise InvalidProgram(f"{program.name} holds no module {module!r} ({path}.py)")


def _parsed(source: bytes, file_name: str) -> ast.Module:
    try:
        return ast.parse(source, file_name)
    except SyntaxError as error:
        raise InvalidProgram(f"{file_name}, line {error.lineno}: {error.msg}") from error
    except ValueError as error:
        raise InvalidProgram(f"{file_name}: {error}") from error


def _bound_names(tree: ast.Module) -> set[str]:
    """Names bound at the top level in other ways than `def`: assignments and imports may be functions, too."""
    bound: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign):
            bound.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return bound


def _file_of(module: str) -> str:
    return module.replace(".", "/") + ".py"
