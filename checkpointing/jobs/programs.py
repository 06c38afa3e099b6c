"""Uploaded programs: their storage, and a check whether a program can start, without running it.

A program is a `.py` file or a `.zip` of such files. A pure Python wheel is a zip file and is stored as `.zip`.
`entry_class` names the function to run: `module:function` (`wordcount:main`, `jobs.wordcount:main`) or
`file.py:function`. For a whole script it is `file.py`, or the module's name in a `.zip`.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import os
import re
import uuid
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from checkpointing.durable_files import write_bytes_durably
from checkpointing.jobs.wheels import NotPure, check_pure, is_wheel, zip_name

SUFFIXES = (".py", ".zip")
# A file system allows 255 bytes for a name, and the ID takes 37 of them.
MAX_NAME_BYTES = 200
_NAME = r"[^/\\\x00-\x1f\x7f]+\.(py|zip)"
_JAR_ID = re.compile(rf"[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}_{_NAME}")
_MAX_MODULE_BYTES = 16 * 1024 * 1024


class ProgramNotFound(LookupError):
    """No program with this ID was uploaded."""


class InvalidProgram(ValueError):
    """The program cannot start. The text says what is wrong and what would be right."""


@dataclass(frozen=True)
class Program:
    """An uploaded program. `used_ms`: when a job was last started from it, or when it was uploaded."""

    jar_id: str
    name: str
    path: Path
    uploaded_ms: int
    used_ms: int


class ProgramStorage:
    """The uploads directory. All methods block.

    A program's id is made of its content and its name: a second upload of the same file returns the same program. A
    file's access time says when it was last used; only this class sets it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def store(self, file_name: str, content: bytes) -> Program:
        """Store an uploaded program. Raise InvalidProgram if a program cannot have this name."""
        if is_wheel(file_name):
            file_name = _zip_of(file_name, content)
        name = _checked_name(file_name)
        content_id = uuid.UUID(bytes=hashlib.sha256(content).digest()[:16])
        path = self._directory / f"{content_id}_{name}"
        if not path.is_file() or path.read_bytes() != content:
            write_bytes_durably(path, content)
        os.utime(path)
        return self.get(path.name)

    def get(self, jar_id: str) -> Program:
        """Return the program. Raise ProgramNotFound if there is none. An ID cannot point outside the directory."""
        path = self._directory / jar_id
        if not _JAR_ID.fullmatch(jar_id) or len(jar_id.encode(errors="replace")) > 255 or not path.is_file():
            raise ProgramNotFound(f"Jar file {jar_id} does not exist")
        found = path.stat()
        uploaded_ms, used_ms = found.st_mtime_ns // 1_000_000, found.st_atime_ns // 1_000_000
        return Program(jar_id, jar_id.partition("_")[2], path, uploaded_ms, max(uploaded_ms, used_ms))

    def use(self, jar_id: str, now_ms: int) -> Program:
        """Return the program and record its use by a job now. Raise ProgramNotFound if there is none."""
        program = self.get(jar_id)
        with contextlib.suppress(FileNotFoundError):
            os.utime(program.path, ns=(now_ms * 1_000_000, program.path.stat().st_mtime_ns))
        return program

    def remove_unused(self, needed: Collection[str], before_ms: int) -> list[str]:
        """Remove the programs that are not `needed` and were last used before `before_ms`; return their ids."""
        unused = [each.jar_id for each in self.list() if each.jar_id not in needed and each.used_ms < before_ms]
        for jar_id in unused:
            with contextlib.suppress(ProgramNotFound):
                self.delete(jar_id)
        return unused

    def list(self) -> tuple[Program, ...]:
        """Return the programs, newest first."""
        if not self._directory.is_dir():
            return ()
        found: list[Program] = []
        for path in self._directory.iterdir():
            with contextlib.suppress(ProgramNotFound, FileNotFoundError):
                found.append(self.get(path.name))
        return tuple(sorted(found, key=lambda program: program.uploaded_ms, reverse=True))

    def delete(self, jar_id: str) -> None:
        self.get(jar_id).path.unlink(missing_ok=True)


def _zip_of(wheel: str, content: bytes) -> str:
    try:
        check_pure(content)
    except NotPure as error:
        raise InvalidProgram(f"{wheel[:300]!r} is not allowed: {error}.") from error
    return zip_name(wheel)


def _checked_name(file_name: str) -> str:
    """Return the name without its directories. Raise InvalidProgram if a program cannot have this name."""
    name = Path(file_name.replace("\\", "/")).name
    if not name.endswith(SUFFIXES) or name in SUFFIXES:
        raise InvalidProgram(
            f"Only .py files, .zip files of them and pure Python wheels (.whl) are allowed, not {file_name[:300]!r}."
        )
    if not re.fullmatch(_NAME, name):
        raise InvalidProgram(f"{name[:300]!r} is not allowed as a file name; it has control characters.")
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidProgram(f"{name[:300]!r} is not allowed as a file name; it is not valid Unicode.") from None
    if length > MAX_NAME_BYTES:
        raise InvalidProgram(f"The file name is {length} bytes long; at most {MAX_NAME_BYTES} are allowed.")
    return name


def check_program(program: Program, entry_class: str) -> None:
    """Raise InvalidProgram if the file does not parse, or lacks the named function at its top level."""
    module, function = split_entry_class(entry_class)
    is_single = program.path.suffix == ".py"
    if function is None and is_single and not entry_class.endswith(".py"):
        raise _invalid_entry_class(entry_class)
    source = _plain_source(program, module) if is_single else _zipped_source(program, module)
    tree = _parsed(source, _file_of(module))
    if function is None:
        return
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
    """Return the values of `entry_class` that a `.py` program offers: public top-level functions with two arguments.

    A file without such a function, or with code for `__main__`, is also offered as a script.
    """
    if program.path.suffix != ".py":
        return ()
    try:
        tree = _parsed(program.path.read_bytes(), program.name)
    except (InvalidProgram, OSError):
        return ()
    functions = tuple(
        f"{program.name}:{node.name}"
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and len(node.args.args) == 2
    )
    is_script = not functions or any(
        isinstance(node, ast.If) and "__main__" in ast.dump(node.test) for node in tree.body
    )
    return (*functions, program.name) if is_script else functions


def split_entry_class(entry_class: str) -> tuple[str, str | None]:
    """Return (dotted module, function) of `module:function` or `file.py:function`. A script has None as function."""
    module, colon, function = entry_class.partition(":")
    is_file = module.endswith(".py")
    module = module.removesuffix(".py")
    if not colon and is_file and module:
        return module, None  # a script is not imported, so any file name is allowed
    names = [*module.split("."), function] if colon else module.split(".")
    if not all(part.isidentifier() for part in names):
        raise _invalid_entry_class(entry_class)
    return module, function if colon else None


def _invalid_entry_class(entry_class: str) -> InvalidProgram:
    return InvalidProgram(
        f"entryClass: {entry_class!r} is not allowed; write module:function or file.py:function, "
        "or file.py to run the whole file as a script"
    )


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
    raise InvalidProgram(f"{program.name} has no module {module!r} ({path}.py)")


def _parsed(source: bytes, file_name: str) -> ast.Module:
    try:
        return ast.parse(source, file_name)
    except SyntaxError as error:
        raise InvalidProgram(f"{file_name}, line {error.lineno}: {error.msg}") from error
    except ValueError as error:
        raise InvalidProgram(f"{file_name}: {error}") from error


def _bound_names(tree: ast.Module) -> set[str]:
    """Return names bound at the top level by assignments and imports, because these may be functions, too."""
    bound: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Assign):
            bound.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return bound


def _file_of(module: str) -> str:
    return module.replace(".", "/") + ".py"
