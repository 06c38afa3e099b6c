"""How a job manager stores a job's program before it accepts the job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkpointing.jobs.attempts import JobDirectory


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> dict[Path, bytes | list[str]]:
    """Return what is on disk, by path: each file's bytes or directory's names at its last fsync."""
    on_disk: dict[Path, bytes | list[str]] = {}
    fsync = os.fsync

    def sees(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        on_disk[path] = sorted(each.name for each in path.iterdir()) if path.is_dir() else path.read_bytes()

    monkeypatch.setattr(os, "fsync", sees)
    return on_disk


def upload(directory: Path, name: str, content: bytes) -> Path:
    file = directory / "uploads" / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    return file


def test_a_program_and_its_directories_are_synced_to_the_disk(
    tmp_path: Path, synced: dict[Path, bytes | list[str]]
) -> None:
    """The job's graph is stored right after the program. A power cut must not leave a job without its program."""
    jobs = tmp_path / "state" / "jobs"

    JobDirectory(jobs, "ab").store_program(upload(tmp_path, "words.py", b"program"), "words.py")

    assert synced[jobs / "ab" / "program" / "words.py"] == b"program"
    for directory, name in (
        ("ab/program", "words.py"),
        ("ab", "program"),
        ("", "ab"),
        ("..", "jobs"),
        ("../..", "state"),
    ):
        path = (jobs / directory).resolve()
        assert name in synced[path], f"{name} may be missing in {path} after a power cut"


def test_a_second_submission_replaces_a_program_of_any_name(
    tmp_path: Path, synced: dict[Path, bytes | list[str]]
) -> None:
    directory = JobDirectory(tmp_path, "ab")
    directory.store_program(upload(tmp_path, "a.py", b"first"), "a.py")

    directory.store_program(upload(tmp_path, "b.py", b"second"), "b.py")

    assert directory.program().name == "b.py"
    assert directory.program().read_bytes() == b"second"
    assert synced[tmp_path / "ab" / "program"] == ["b.py"], "the first one would come back after a power cut"


def test_bytecode_next_to_the_program_is_not_a_program(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path, "ab")
    directory.store_program(upload(tmp_path, "b.py", b"program"), "b.py")
    (tmp_path / "ab" / "program" / "__pycache__").mkdir()

    assert directory.program().name == "b.py"


def test_a_job_without_its_program_names_the_missing_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "ab" / "program")):
        JobDirectory(tmp_path, "ab").program()
