"""Real servers for the tests, each started the first time a test asks for it and stopped with the session.

Under xdist every worker has its own. A server that is given from outside (DATABASE_URL, REDIS_URL, ZOOKEEPER_HOSTS) is
used as it is, and not started.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserType, Playwright, sync_playwright

from checkpointing.jobs.launching.class_archive import options as class_archive_options
from tests import class_archive, database, profile

# Nothing of a test, or of a process that it starts, may land in the checkout's own ./var or in a developer's database.
_SESSION = Path(tempfile.mkdtemp(prefix="waymark-test-", dir="/tmp"))
_SESSION.chmod(0o711)  # PostgreSQL's user passes through
os.environ["WAYMARK_VAR"] = str(_SESSION / "var")
# By address: a bare machine does not know the name localhost.
os.environ.setdefault("DJANGO_LIVE_TEST_SERVER_ADDRESS", "127.0.0.1")
os.environ.setdefault("JDK_JAVA_OPTIONS", class_archive.SHORT_LIVED)
# Shared by xdist's workers, which inherit the name; removed by the process that started the run.
_RUN = Path(os.environ.setdefault("WAYMARK_TEST_RUN", str(_SESSION)))
# One for all of xdist's workers, which inherit the name; made by the first that needs Java.
_ARCHIVE = Path(os.environ.setdefault("WAYMARK_TEST_CLASS_ARCHIVE", str(_SESSION / "classes.jsa")))
_SERVER_MARKS = ("django_db", "spark", "zookeeper", "browser", "flink", "stack", "server", "nightly")
_SERVER_FIXTURES = frozenset(
    ("db", "transactional_db", "live_server", "postgres_dsn", "redis_url", "zookeeper_hosts", "java_home", "page")
)
_BEGUN_FIRST = (("stack",), ("long",), ("spark", "flink", "zookeeper", "browser"))
_IS_LONG_RUN = "PYTEST_XDIST_WORKER" in os.environ
if _IS_LONG_RUN:
    os.environ.setdefault("SPARK_SUBMIT_OPTS", class_archive_options(str(_ARCHIVE)))
# A job manager of a test lives too short for one of its own.
os.environ.setdefault("WAYMARK_CLASS_DATA_SHARING", "false")
# The settings want an address before a server runs. xdist's workers inherit it: it is nobody's choice there either.
_NOT_STARTED = "postgresql://waymark@127.0.0.1:1/not-started"
os.environ.setdefault("DATABASE_URL", _NOT_STARTED)
_GIVEN = {
    name: None if os.environ.get(name) == _NOT_STARTED else os.environ.get(name)
    for name in ("DATABASE_URL", "REDIS_URL", "ZOOKEEPER_HOSTS")
}


def pytest_configure() -> None:
    """The settings are loaded by now, before this file was: what they took from the checkout's own var is put right."""
    from django.conf import settings

    settings.VAR_DIR = _SESSION / "var"
    settings.MAILBOX_DIR = settings.VAR_DIR / "mail"
    settings.SECRET_KEY, settings.SECRET_KEY_IS_SECRET = "a key of the tests' own, long enough for anybody", True


def pytest_report_header() -> str:
    return f"waymark: profile {profile.NAME}, seed {profile.SEED} (WAYMARK_TESTS, WAYMARK_TESTS_SEED)"


def pytest_itemcollected(item: pytest.Item) -> None:
    if not _needs_a_server(item):
        item.add_marker(pytest.mark.unit)


def _needs_a_server(item: pytest.Item) -> bool:
    """A server, a JVM or a browser, by the test's marks and fixtures."""
    return any(map(item.get_closest_marker, _SERVER_MARKS)) or not _SERVER_FIXTURES.isdisjoint(
        getattr(item, "fixturenames", ())
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long are begun first: no process shall be left alone with one at the end."""
    last = len(_BEGUN_FIRST)
    ranks = {item.path: last for item in items}
    for item in items:
        rank = next((rank for rank, marks in enumerate(_BEGUN_FIRST) if any(map(item.get_closest_marker, marks))), last)
        ranks[item.path] = min(rank, ranks[item.path])
    items.sort(key=lambda item: ranks[item.path])


def pytest_unconfigure() -> None:
    shutil.rmtree(_SESSION, ignore_errors=True)


@pytest.fixture(scope="session")
def session_directory() -> Path:
    """A short, absolute path that every user can reach (PostgreSQL's server user too); removed after the session."""
    return _SESSION


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    place = tmp_path / "small"
    place.mkdir()
    made = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not made or made.returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(scope="session")
def httpserver_listen_address() -> tuple[str, int]:
    """By address: a bare machine does not know the name localhost."""
    return "127.0.0.1", 0


@pytest.fixture(scope="session")
def java_home(session_directory: Path) -> Iterator[Path]:
    """A Java that PySpark starts with; also put into JAVA_HOME. A long run makes its sessions start faster."""
    from checkpointing.java import find_java

    home = find_java(os.environ, session_directory / "java").home
    os.environ["JAVA_HOME"] = str(home)
    with class_archive.made(_ARCHIVE) if _IS_LONG_RUN else contextlib.nullcontext():
        yield home


@pytest.fixture(scope="session")
def spark_of_the_process(tmp_path_factory: pytest.TempPathFactory, java_home: Path) -> Iterator[Any]:
    from tests.spark_session import spark_session

    with spark_session(tmp_path_factory.mktemp("spark@here")) as session:
        yield session


@pytest.fixture(scope="module")
def spark(spark_of_the_process: Any) -> Iterator[Any]:
    """The process's Spark session. A module may change settings of it and leave queries running."""
    from tests.spark_session import put_back

    with put_back(spark_of_the_process):
        yield spark_of_the_process


@pytest.fixture(scope="session")
def postgres_dsn(session_directory: Path) -> Iterator[str]:
    """A PostgreSQL server's address, with a database of its own for tests that do not go through Django."""
    if _GIVEN["DATABASE_URL"]:
        yield _GIVEN["DATABASE_URL"]
        return
    if _IS_LONG_RUN:
        database.copy_migrated(_RUN, session_directory / "pg")
    with database.running_server(session_directory / "pg") as server:
        yield server.dsn()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None, postgres_dsn: str) -> None:
    """Start PostgreSQL for the first test that needs Django's database, and point Django there.

    Under xdist Django clones the migrated database instead of running every migration in every worker.
    """
    from django.conf import settings
    from django.db import connection
    from environs import Env

    os.environ["DATABASE_URL"] = postgres_dsn
    settings.DATABASES["default"].update(Env().dj_db_url("DATABASE_URL"))
    if _IS_LONG_RUN and not _GIVEN["DATABASE_URL"]:
        connection.settings_dict["TEST"].update(TEMPLATE=database.MIGRATED, MIGRATE=False)


@pytest.fixture(scope="session")
def redis_url(session_directory: Path) -> Iterator[str]:
    if _GIVEN["REDIS_URL"]:
        yield _GIVEN["REDIS_URL"]
        return
    from dashboard.stack.ports import any_free
    from dashboard.stack.process import running
    from dashboard.stack.redis import RedisServer

    server = RedisServer(session_directory / "redis", any_free())
    with running(server, log=session_directory / "redis.log"):
        yield server.url


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, object]) -> dict[str, object]:
    """Playwright drives the system's Chromium; where there is none, its own, if that is installed."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next(filter(None, map(shutil.which, names)), None)
    arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
    return {**browser_type_launch_args, "args": arguments, **({"executable_path": found} if found else {})}


# pytest-playwright's own last as long as the process, and with them an event loop in its thread: no asyncio test could
# run in it any more. These end with each file.
@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started, pytest.MonkeyPatch.context() as patch:
        # Django takes the event loop for a sign of asynchronous code.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        yield started


@pytest.fixture(scope="module")
def browser_type(playwright: Playwright, browser_name: str) -> BrowserType:
    kind: BrowserType = getattr(playwright, browser_name)
    return kind


@pytest.fixture(scope="module")
def browser(browser_type: BrowserType, browser_type_launch_args: dict[str, Any]) -> Iterator[Browser]:
    with browser_type.launch(**browser_type_launch_args) as launched:
        yield launched


@pytest.fixture(scope="module")
def browser_context_args() -> dict[str, object]:
    return {}


@pytest.fixture(scope="session")
def zookeeper_hosts(session_directory: Path, java_home: Path) -> Iterator[str]:
    """One real ZooKeeper, as `host:port`. Tests use a root of their own (`/test-<uuid>`)."""
    if _GIVEN["ZOOKEEPER_HOSTS"]:
        yield _GIVEN["ZOOKEEPER_HOSTS"]
        return
    from dashboard.stack.ports import any_free
    from dashboard.stack.process import running
    from dashboard.stack.zookeeper import ZooKeeperServer

    server = ZooKeeperServer(session_directory / "zookeeper", any_free(), java_home, tick_ms=500)
    with running(server, log=session_directory / "zookeeper.log"):
        yield server.address
