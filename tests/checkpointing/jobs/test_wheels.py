"""Wheels as programs and as `spark.submit.pyFiles`."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from checkpointing.jobs.programs import InvalidProgram, ProgramStorage, check_program
from checkpointing.jobs.wheels import PY_FILES, check_py_files, wheels_as_zips
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.running_job_manager import RunningJobManager

MODULE = "def main(spark, args):\n    pass\n"


def wheel(*, is_pure: bool = True) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("orders/__init__.py", MODULE)
        archive.writestr("orders-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: {str(is_pure).lower()}\n")
    return buffer.getvalue()


def test_a_wheel_is_stored_as_the_zip_that_it_is(tmp_path: Path) -> None:
    program = ProgramStorage(tmp_path).store("orders-1.0-py3-none-any.whl", wheel())

    assert program.name == "orders-1.0-py3-none-any.zip"
    check_program(program, "orders:main")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (wheel(is_pure=False), "it has compiled parts; put it into an environment"),
        (b"no zip", "it is not a wheel"),
        (b"", "it is not a wheel"),
    ],
)
def test_a_wheel_that_cannot_be_imported_from_a_zip_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InvalidProgram, match=message):
        ProgramStorage(tmp_path).store("orders-1.0-py3-none-any.whl", content)
    assert ProgramStorage(tmp_path).list() == ()


def test_wheels_among_the_python_files_become_zips(tmp_path: Path) -> None:
    file = tmp_path / "orders-1.0-py3-none-any.whl"
    file.write_bytes(wheel())
    settings = {PY_FILES: f"s3a://bucket/a.zip, file:{file}", "spark.x": "1"}

    made = wheels_as_zips(settings, tmp_path / "work" / "wheels")

    copy = tmp_path / "work" / "wheels" / "orders-1.0-py3-none-any.zip"
    assert made == {PY_FILES: f"s3a://bucket/a.zip,{copy}", "spark.x": "1"}
    assert copy.read_bytes() == file.read_bytes()
    assert wheels_as_zips({PY_FILES: "/a.zip"}, tmp_path / "none") == {PY_FILES: "/a.zip"}
    assert not (tmp_path / "none").exists()


def test_a_program_can_import_them_before_spark_starts(tmp_path: Path) -> None:
    file, module = tmp_path / "orders-1.0-py3-none-any.whl", tmp_path / "prices.py"
    file.write_bytes(wheel())
    module.write_text("price = 7\n")
    code = (
        "import sys; from pathlib import Path; from checkpointing.jobs.wheels import make_importable\n"
        "make_importable({'spark.submit.pyFiles': sys.argv[1]}, Path(sys.argv[2]))\n"
        "import orders, prices\nprint(orders.main.__name__, prices.price)"
    )
    arguments = [f"s3a://bucket/a.zip,{file},{module}", str(tmp_path / "program")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "main 7\n"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("/nowhere/a.whl", "'/nowhere/a.whl' is not allowed; a pure Python wheel: No such file or directory"),
        ("s3a://bucket/a.whl", "only wheels on the job manager's machine"),
        ("a.whl", "neither an absolute path"),
        (__file__ + "/a.whl", "Not a directory"),
    ],
)
def test_a_wheel_that_cannot_be_used_is_refused(file: str, message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        check_py_files({PY_FILES: f"/fine.zip,{file}"})


async def test_bad_wheel_is_refused_before_anything_starts(manager: RunningJobManager) -> None:
    with pytest.raises(RequestRefused, match=r"^spark\.submit\.pyFiles: '/nowhere/a\.whl' is not allowed"):
        await manager.submit({PY_FILES: "/nowhere/a.whl"})
    assert manager.launcher.drivers == []
