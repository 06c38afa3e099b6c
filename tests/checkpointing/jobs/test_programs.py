from __future__ import annotations

import os
import uuid
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from checkpointing.jobs.programs import (
    InvalidProgram,
    Program,
    ProgramNotFound,
    ProgramStorage,
    check_program,
    entry_functions,
)

SOURCE = b"def main(spark, args):\n    pass\n\nasync def later(spark, args): ...\n\nalias = main\n"


@pytest.fixture
def storage(tmp_path: Path) -> ProgramStorage:
    return ProgramStorage(tmp_path / "programs")


def zipped(storage: ProgramStorage, **modules: bytes) -> Program:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, source in modules.items():
            archive.writestr(name.replace("__", "/") + ".py", source)
    return storage.store("jobs.zip", buffer.getvalue())


def test_an_uploaded_program_is_found_by_its_id(storage: ProgramStorage) -> None:
    program = storage.store("wordcount.py", SOURCE)

    assert program.jar_id.endswith("_wordcount.py")
    assert storage.get(program.jar_id).path.read_bytes() == SOURCE
    assert [found.jar_id for found in storage.list()] == [program.jar_id]


@pytest.mark.parametrize("name", ["job.jar", "job.py.txt", ".py", "", "job"])
def test_only_programs_are_stored(storage: ProgramStorage, name: str) -> None:
    with pytest.raises(InvalidProgram):
        storage.store(name, SOURCE)

    assert storage.list() == ()


def test_a_name_with_directories_stays_within_the_program_directory(storage: ProgramStorage, tmp_path: Path) -> None:
    program = storage.store("../../etc/evil.py", SOURCE)

    assert program.path.parent == tmp_path / "programs"
    assert program.name == "evil.py"


@pytest.mark.parametrize("jar_id", ["", "..", "../programs", "nothing.py", "0" * 36 + "_a.py"])
def test_an_invalid_id_is_not_found(storage: ProgramStorage, jar_id: str) -> None:
    storage.store("a.py", SOURCE)

    with pytest.raises(ProgramNotFound):
        storage.get(jar_id)


@pytest.mark.parametrize("entry", ["wordcount:main", "wordcount.py:main", "wordcount.py:alias", "wordcount.py"])
def test_a_program_with_its_function_or_as_a_script_passes(storage: ProgramStorage, entry: str) -> None:
    check_program(storage.store("wordcount.py", SOURCE), entry)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("wordcount.py:missing", "no top-level function 'missing'; it has main"),
        ("wordcount.py:later", "async function"),
        ("other.py:main", "the program is wordcount.py"),
        ("wordcount", "write module:function .*or file.py to run the whole file"),
        (".py", "write module:function"),
        ("other.py", "the program is wordcount.py"),
        ("wordcount.py:a b", "write module:function"),
        (":main", "write module:function"),
        ("../wordcount.py:main", "write module:function"),
    ],
)
def test_a_wrong_entry_class_is_explained(storage: ProgramStorage, entry: str, message: str) -> None:
    with pytest.raises(InvalidProgram, match=message):
        check_program(storage.store("wordcount.py", SOURCE), entry)


def test_a_program_that_does_not_parse_names_the_line(storage: ProgramStorage) -> None:
    program = storage.store("bad.py", b"def main(spark, args):\n    return (\n")

    with pytest.raises(InvalidProgram, match=r"bad\.py, line 2"):
        check_program(program, "bad.py:main")


def test_bytes_that_are_not_text_are_refused(storage: ProgramStorage) -> None:
    with pytest.raises(InvalidProgram, match=r"bad\.py"):
        check_program(storage.store("bad.py", b"\x00\xff"), "bad.py:main")


def test_a_zip_is_searched_for_the_module(storage: ProgramStorage) -> None:
    program = zipped(storage, wordcount=SOURCE, jobs__deep=SOURCE)

    check_program(program, "wordcount:main")
    check_program(program, "jobs.deep:main")
    check_program(program, "jobs.deep")
    with pytest.raises(InvalidProgram, match="has no module 'other'"):
        check_program(program, "other:main")


def test_a_file_named_zip_with_another_content_is_refused(storage: ProgramStorage) -> None:
    with pytest.raises(InvalidProgram, match="not a zip file"):
        check_program(storage.store("jobs.zip", b"no zip"), "wordcount:main")


def test_the_functions_that_could_be_run_are_offered(storage: ProgramStorage) -> None:
    program = storage.store("a.py", SOURCE + b"def _private(spark, args): ...\ndef one(argument): ...\n")

    assert entry_functions(program) == ("a.py:main",)
    script = storage.store("b-1.py", SOURCE + b"if __name__ == '__main__':\n    main(None, {})\n")
    assert entry_functions(script) == ("b-1.py:main", "b-1.py")
    assert entry_functions(storage.store("c.py", b"print()")) == ("c.py",)


def test_a_script_may_have_any_file_name(storage: ProgramStorage) -> None:
    check_program(storage.store("01 my-job.py", b"print()"), "01 my-job.py")


def test_the_same_file_is_stored_once(storage: ProgramStorage) -> None:
    first, again = storage.store("a.py", SOURCE), storage.store("a.py", SOURCE)
    other_name, other_content = storage.store("b.py", SOURCE), storage.store("a.py", SOURCE + b"\n")

    assert again.jar_id == first.jar_id
    assert len({first.jar_id, other_name.jar_id, other_content.jar_id}) == len(storage.list()) == 3


def test_a_damaged_upload_is_written_again(storage: ProgramStorage) -> None:
    storage.store("a.py", SOURCE).path.write_bytes(SOURCE[:5])

    assert storage.store("a.py", SOURCE).path.read_bytes() == SOURCE


@pytest.mark.parametrize("length", [200, 201, 300, 5000])
def test_a_name_has_a_longest_length(storage: ProgramStorage, length: int) -> None:
    name = "ü" * ((length - 3) // 2) + "x" * (1 - length % 2) + ".py"
    assert len(name.encode()) == length
    if length <= 200:
        assert storage.store(name, SOURCE).name == name
    else:
        with pytest.raises(InvalidProgram, match=f"The file name is {length} bytes long; at most 200 are allowed"):
            storage.store(name, SOURCE)


@pytest.mark.parametrize("name", ["a\nb.py", "a\x00.py", "\udcff.py", "a\x7f.zip"])
def test_a_name_that_no_page_could_show_is_refused(storage: ProgramStorage, name: str) -> None:
    with pytest.raises(InvalidProgram, match="is not allowed as a file name"):
        storage.store(name, SOURCE)
    assert storage.list() == ()


def test_an_id_that_is_too_long_for_a_file_is_not_found(storage: ProgramStorage) -> None:
    with pytest.raises(ProgramNotFound):
        storage.get(f"{uuid.UUID(int=0)}_{'a' * 5000}.py")


def test_unneeded_programs_are_removed_after_a_long_time_without_use(storage: ProgramStorage) -> None:
    needed, used, uploaded_again, unused = (storage.store(f"{name}.py", SOURCE) for name in ("a", "b", "c", "d"))
    for program in (needed, used, uploaded_again, unused):
        os.utime(program.path, ns=(1_000 * 10**6, 1_000 * 10**6))
    storage.use(used.jar_id, 3_000)
    storage.store("c.py", SOURCE)

    assert storage.remove_unused({needed.jar_id}, 1_000) == []
    assert storage.remove_unused({needed.jar_id}, 2_000) == [unused.jar_id]
    assert {each.jar_id for each in storage.list()} == {needed.jar_id, used.jar_id, uploaded_again.jar_id}
    assert storage.get(used.jar_id).uploaded_ms == 1_000, "using it is not uploading it"
