"""Loading of programs, with a clear error for each fault of a program."""

from __future__ import annotations

import sys
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql.utils import ForeachBatchFunction

from checkpointing.spark.program import (
    Program,
    ProgramError,
    ScriptExited,
    as_writers,
    call_program,
    guard_batch_functions,
    load_program,
    parse_arguments,
)


@pytest.fixture(autouse=True)
def _own_modules() -> Iterator[None]:
    path, modules, main, argv = list(sys.path), set(sys.modules), sys.modules["__main__"], sys.argv
    yield
    sys.path[:], sys.modules["__main__"], sys.argv = path, main, argv
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def name() -> str:
    return f"program_{uuid.uuid4().hex[:8]}"


def load(tmp_path: Path, name: str, source: str, function: str = "main") -> Program:
    path = tmp_path / f"{uuid.uuid4()}_{name}.py"  # the name that the job manager gives to an upload
    path.write_text(source)
    return load_program(path, f"{name}:{function}", tmp_path / "program")


def test_a_function_of_an_uploaded_file_is_found(tmp_path: Path, name: str) -> None:
    program = load(tmp_path, name, "def main(spark, args): return args['n']")
    assert program.function(None, {"n": "7"}) == "7"
    assert program.path == tmp_path / "program" / f"{name}.py"


def test_the_module_may_be_written_as_a_file_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "upload.py"
    path.write_text("def main(spark, args): ...")
    assert load_program(path, f"{name}.py:main", tmp_path / "program").entry_class == f"{name}.py:main"


def test_a_function_in_a_package_of_a_zip_is_found(tmp_path: Path, name: str) -> None:
    path = tmp_path / "upload.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "")
        archive.writestr(f"{name}/jobs.py", f"from {name}.words import n\ndef main(spark, args): return n")
        archive.writestr(f"{name}/words.py", "n = 5")
    assert load_program(path, f"{name}.jobs:main", tmp_path / "program").function(None, {}) == 5


SCRIPT = """
import sys
from pathlib import Path

def write(text):
    Path(sys.argv[1]).write_text(text)

if __name__ == "__main__":
    write(f"{Path(__file__).name} {sys.argv[2:]} {__name__} {write.__module__}")
"""


def test_a_script_runs_as_main_with_its_arguments(tmp_path: Path) -> None:
    path = tmp_path / "0815_my-job.py"
    path.write_text(SCRIPT)
    program = load_program(path, "my-job.py", tmp_path / "program")
    assert program.is_script
    call_program(program, None, [str(tmp_path / "out"), "a b", "--n"])
    assert (tmp_path / "out").read_text() == "my-job.py ['a b', '--n'] __main__ __main__"


def test_a_module_of_a_zip_runs_as_a_script_next_to_its_modules(tmp_path: Path, name: str) -> None:
    path = tmp_path / "upload.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "")
        archive.writestr(f"{name}/words.py", "n = 5")
        archive.writestr(f"{name}/job.py", f"from .words import n\nassert n == 5\n{SCRIPT}")
    program = load_program(path, f"{name}.job", tmp_path / "program")
    call_program(program, None, [str(tmp_path / "out"), "x"])
    assert (tmp_path / "out").read_text() == "job.py ['x'] __main__ __main__"
    with pytest.raises(ProgramError, match=f"has no module '{name}.gone'"):
        load_program(path, f"{name}.gone", tmp_path / "program")


@pytest.mark.parametrize(("code", "ends_well"), [("0", True), ("", True), ("3", False), ("'usage'", False)])
def test_a_script_ends_with_its_exit_code(tmp_path: Path, code: str, ends_well: bool) -> None:
    path = tmp_path / "job.py"
    path.write_text(f"raise SystemExit({code})")
    program = load_program(path, "job.py", tmp_path / "program")
    with nullcontext() if ends_well else pytest.raises(ScriptExited, match="ended with exit code"):
        call_program(program, None, [])


def test_a_script_with_a_syntax_error_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("print(")
    with pytest.raises(ProgramError, match=r"job\.py does not compile: SyntaxError"):
        load_program(path, "job.py", tmp_path / "program")


@pytest.mark.parametrize("entry", ["", "wordcount:", ":main", "word-count:main", "a b:main"])
def test_an_entry_that_names_no_function_is_refused(tmp_path: Path, entry: str) -> None:
    with pytest.raises(ProgramError, match="write module:function"):
        load_program(tmp_path / "x.py", entry, tmp_path / "program")


def test_a_program_that_does_not_import_is_refused_with_the_cause(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProgramError, match=f"{name} does not import: ModuleNotFoundError: No module named 'pandsa'"):
        load(tmp_path, name, "import pandsa")


def test_a_syntax_error_is_a_program_that_does_not_import(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProgramError, match="does not import: SyntaxError"):
        load(tmp_path, name, "def main(:")


def test_a_program_that_ends_the_process_while_it_is_imported_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProgramError, match="it ends the process"):
        load(tmp_path, name, "raise SystemExit(3)")


def test_a_missing_function_is_refused_with_the_existing_ones(tmp_path: Path, name: str) -> None:
    source = "from json import dumps\ndef wordcount(spark, args): ...\ndef _hidden(): ...\ndef other(spark, args): ..."
    with pytest.raises(ProgramError, match=f"{name} has no function 'main'; functions there: other, wordcount"):
        load(tmp_path, name, source)


def test_something_else_of_the_functions_name_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProgramError, match=r"no function 'main', only a builtins\.int of that name"):
        load(tmp_path, name, "main = 42")


def test_a_function_that_ends_the_process_is_refused(tmp_path: Path, name: str) -> None:
    program = load(tmp_path, name, "def main(spark, args):\n    raise SystemExit(3)")

    with pytest.raises(ProgramError, match=r"ends the process \(SystemExit\(3\)\) instead of returning"):
        call_program(program, None, {})


def test_a_wrong_signature_is_shown(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProgramError, match=r":main\(spark\) cannot be called as main\(spark, args\)"):
        load(tmp_path, name, "def main(spark): ...")


def test_a_module_that_the_zip_lacks_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "upload.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.py", "")
    with pytest.raises(ProgramError, match=f"{name} does not import: ModuleNotFoundError"):
        load_program(path, f"{name}:main", tmp_path / "program")


@pytest.mark.parametrize(
    ("file", "message"),
    [("gone.py", "does not exist"), ("text.txt", "neither a .py file nor a .zip"), ("bad.zip", "not a zip archive")],
)
def test_a_file_that_is_not_a_program_is_refused(tmp_path: Path, file: str, message: str) -> None:
    (tmp_path / "text.txt").write_text("")
    (tmp_path / "bad.zip").write_text("no zip")
    with pytest.raises(ProgramError, match=message):
        load_program(tmp_path / file, "module:main", tmp_path / "program")


def test_a_module_name_that_python_has_already_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="the module name 'json' is taken by"):
        load(tmp_path, "json", "def main(spark, args): ...")


def test_arguments_are_accepted_with_or_without_an_equals_sign() -> None:
    words = ["--input", "/in", "--output=/out", "--verbose", "--n", "-5", "--expr=a=b"]
    assert parse_arguments(words) == {
        "input": "/in", "output": "/out", "verbose": "true", "n": "-5", "expr": "a=b",
    }  # fmt: skip


def test_an_argument_without_a_name_is_refused() -> None:
    with pytest.raises(ProgramError, match="program argument 'input' has no name; write --name value"):
        parse_arguments(["input"])


@pytest.mark.parametrize(
    ("returned", "message"),
    [(None, r"it returned nothing \(None\)"), (5, "it returned a builtins.int"), ([], "an empty list")],
)
def test_a_program_that_returns_something_else_is_refused(returned: object, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        as_writers(returned, "wordcount:main")


def test_a_batch_function_that_ends_the_process_fails_its_batch_instead_of_leaving_it_waiting() -> None:
    def leave(frame: object, batch: int) -> None:
        sys.exit(batch)

    guard_batch_functions()
    guard_batch_functions()

    with pytest.raises(ProgramError, match=r"ends the process \(SystemExit\(7\)\) instead of returning"):
        ForeachBatchFunction(None, leave).func(None, 7)


def test_operators_before_a_batch_function_see_the_same_batch() -> None:
    before: list[tuple[object, int]] = []
    guard_batch_functions(lambda frame, batch: before.append((frame, batch)))
    try:
        ForeachBatchFunction(None, lambda frame, batch: before.append(("called", batch))).func("frame", 7)
    finally:
        guard_batch_functions()
    assert before == [("frame", 7), ("called", 7)]


def test_batch_function_error_is_reported_and_raised() -> None:
    def leave(frame: object, batch: int) -> None:
        raise KeyError(batch) if batch else SystemExit

    raised: list[Exception] = []
    guard_batch_functions(on_error=raised.append)
    try:
        function = ForeachBatchFunction(None, leave).func
        for batch, kind in ((7, KeyError), (0, ProgramError)):
            with pytest.raises(kind):
                function(None, batch)
    finally:
        guard_batch_functions()
    assert [type(error) for error in raised] == [KeyError, ProgramError]
