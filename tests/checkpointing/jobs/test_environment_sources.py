"""Checks of the sources of a job's Python environment that are possible before the environment is created."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointing.jobs.known_keys import UnknownKey, check_keys
from checkpointing.jobs.launching.deployment import Site
from checkpointing.jobs.launching.local import LocalDriverLauncher
from checkpointing.jobs.python_environments.failures import install_failed
from checkpointing.jobs.python_environments.preparation import PreparedPython, SourceKind
from checkpointing.jobs.python_environments.source import (
    MOST_TEXT,
    EnvironmentSource,
    check_source,
    has_hashes,
    in_prepared,
)
from checkpointing.model.configuration import InvalidConfiguration
from checkpointing.model.job_graph import JobGraph

REQUIREMENTS, ARCHIVE = "waymark.python.requirements", "waymark.python.archive"
MISTAKE, AWAY = "pip could not install the requirements", "pip could not reach its index"
FULL = "this machine has no room for the environment"


def source_of(configuration: dict[str, str]) -> EnvironmentSource:
    source = EnvironmentSource.parse(configuration)
    assert source is not None
    return source


@pytest.mark.parametrize("configuration", [{}, {"waymark.python": "/usr/bin/python3"}, {REQUIREMENTS: "  "}])
def test_a_job_may_need_no_prepared_environment(configuration: dict[str, str]) -> None:
    assert EnvironmentSource.parse(configuration) is None


def test_requirements_are_a_text_or_the_location_of_one(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("pandas==2.2.3\n")

    assert source_of({REQUIREMENTS: "pandas==2.2.3"}).read_text() == "pandas==2.2.3"
    by_path = source_of({REQUIREMENTS: str(file)})
    assert (by_path.kind, by_path.location) == (SourceKind.REQUIREMENTS, str(file))
    assert by_path.read_text() == "pandas==2.2.3", "it is the same as the text without the last line's end"
    assert source_of({REQUIREMENTS: file.as_uri()}).read_text() == "pandas==2.2.3"
    assert source_of({REQUIREMENTS: "s3://bucket/r.txt"}).location == "s3://bucket/r.txt"
    assert source_of({ARCHIVE: "s3://bucket/env.tar.gz"}).kind is SourceKind.ARCHIVE


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({REQUIREMENTS: "pandas\n-r base.txt"}, r"'line 2: -r base\.txt' is not allowed; one file without references"),
        ({REQUIREMENTS: "--constraint c.txt\npandas"}, "line 1: --constraint"),
        ({REQUIREMENTS: "-e ."}, "line 1: -e"),
        ({REQUIREMENTS: "./local.whl"}, r"line 1: \./local"),
        ({REQUIREMENTS: "requirements.txt"}, "an absolute path; `submit --requirements FILE` sends the file"),
        ({REQUIREMENTS: f"# {'x' * MOST_TEXT}"}, f"at most {MOST_TEXT} bytes"),
        ({ARCHIVE: "env.tar.gz"}, r"waymark\.python\.archive: 'env\.tar\.gz' is not allowed; an absolute path"),
        ({ARCHIVE: "s3://user:hunter2@bucket/env.tar.gz"}, "an address must not contain a password"),
        ({ARCHIVE: "/a.tar", REQUIREMENTS: "pandas"}, "only one of"),
        ({REQUIREMENTS: "-r https://me:hunter2@pypi.internal/base.txt"}, r"line 1: -r https://me:\*{6}@pypi"),
        ({"waymark.python": "/p", ARCHIVE: "/a.tar"}, r"only one of waymark\.python, waymark\.python\.archive"),
    ],
)
def test_impossible_environment_is_refused(configuration: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        check_keys(configuration)


def test_the_keys_are_known_and_a_misspelt_one_is_not() -> None:
    check_keys({REQUIREMENTS: "pandas"})
    with pytest.raises(UnknownKey, match=r"the most similar key is waymark\.python\.requirements"):
        check_keys({"waymark.python.requirement": "pandas"})


def test_a_source_that_is_missing_is_refused_at_submission(tmp_path: Path) -> None:
    for key in (REQUIREMENTS, ARCHIVE):
        with pytest.raises(InvalidConfiguration, match="a file that the job manager can read"):
            check_source({key: str(tmp_path / "missing")})
    (tmp_path / "there").write_bytes(b"\xff\xfe")
    check_source({ARCHIVE: str(tmp_path / "there")})
    with pytest.raises(InvalidConfiguration, match="UTF-8"):
        check_source({REQUIREMENTS: str(tmp_path / "there")})


def test_hashes_are_found_where_pip_finds_them() -> None:
    assert has_hashes("pandas==2.2.3 \\\n    --hash=sha256:abc\n")
    assert not has_hashes("pandas==2.2.3  \n# pandas --hash=sha256:abc\n")


def test_a_driver_gets_the_prepared_python_and_not_its_sources() -> None:
    configuration = {REQUIREMENTS: "pandas", "spark.x": "1"}
    assert in_prepared(PreparedPython("n", "/e/bin/python"), configuration) == {
        "waymark.python": "/e/bin/python",
        "spark.x": "1",
    }
    assert in_prepared(None, {"waymark.python": "/p"}) == {"waymark.python": "/p"}


@pytest.mark.parametrize("key", [REQUIREMENTS, ARCHIVE])
def test_a_driver_in_a_cluster_cannot_have_a_python_environment(tmp_path: Path, key: str) -> None:
    site = Site(storage_is_shared=True, address="http://jm.internal:8081")
    launcher = LocalDriverLauncher({}, lambda: Path("/opt"), tmp_path, site=site)
    place = {"spark.master": "yarn", "spark.submit.deployMode": "cluster"}
    graph = JobGraph("0" * 32, "job", "jar", "p:main", configuration={**place, key: "/x"})
    with pytest.raises(InvalidConfiguration, match=rf"{key}.*spark\.pyspark\.python instead.*spark\.archives"):
        launcher.check(graph)


@pytest.mark.parametrize(
    ("log", "what"),
    [
        ("Could not fetch URL http://i/simple/foo/: 404 Client Error: Not Found for url: … - skipping", MISTAKE),
        ("Could not fetch URL http://i/simple/foo/: 403 Client Error: Forbidden for url: … - skipping", MISTAKE),
        ("Could not fetch URL http://i/simple/foo/: 429 Client Error: Too Many Requests for url: …", AWAY),
        ("Could not fetch URL http://i/simple/foo/: connection error: [Errno 111] Connection refused", AWAY),
        ("ERROR: HTTP error 503 while getting http://i/simple/pandas", AWAY),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", FULL),
        ("ERROR: No matching distribution found for pandas==9", MISTAKE),
    ],
)
def test_a_transient_failure_is_distinguished_from_a_permanent_one(tmp_path: Path, log: str, what: str) -> None:
    (tmp_path / "log").write_text(f"2026-11-25T10:37:19,976 Using pip 26.3\n2026-11-25T10:37:19,977 {log}\n")
    failure = install_failed(["ERROR: it failed"], tmp_path / "log")
    assert failure.is_mistake is (what == MISTAKE)
    reason = str(failure).removeprefix(f"{what}: ")
    assert reason == "it failed" if what == MISTAKE else log.endswith(reason)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("OSError: [Errno 28] No space left on device", FULL),
        ("ERROR: HTTP error 503 while getting http://i/simple/pandas", AWAY),
        ("/srv/bin/python: No module named pip", "the job manager's Python has no pip; install it there"),
    ],
)
def test_error_in_the_output_is_found_without_a_log(tmp_path: Path, line: str, what: str) -> None:
    failure = install_failed([line], tmp_path / "log")
    assert (str(failure), failure.is_mistake) == (f"{what}: {line.removeprefix('ERROR: ')}", False)


def test_the_password_in_a_line_of_the_log_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("Could not fetch URL https://me:hunter2@i/simple/x/: connection error: refused\n")
    failure = install_failed([], tmp_path / "log")
    assert str(failure) == f"{AWAY}: Could not fetch URL https://me:******@i/simple/x/: connection error: refused"


def test_the_first_error_is_the_message_and_the_rest_is_kept(tmp_path: Path) -> None:
    output = [
        "Looking in indexes: http://i",
        "ERROR: No version satisfies nothing==9",
        "ERROR: No matching distribution",
    ]
    mistake = install_failed(output, tmp_path / "log")
    assert str(mistake) == "pip could not install the requirements: No version satisfies nothing==9"
    assert mistake.details.splitlines() == output
    assert "the last line" in str(install_failed(["first", "the last line"], tmp_path / "log"))
    assert "pip printed nothing" in str(install_failed([], tmp_path / "log"))
