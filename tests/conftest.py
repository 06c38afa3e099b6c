"""Real servers for the tests. Each starts when the first test needs it, and stops at the end of the session.

Under xdist, every worker has its own servers. If a variable (DATABASE_URL, REDIS_URL, ZOOKEEPER_HOSTS) names a running
server, the tests use that server.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserType, Playwright, sync_playwright

from tests import class_archive, database, profile

# Tests and their processes must not write to ./var of the checkout or to a developer's database.
_SESSION = Path(tempfile.mkdtemp(prefix="waymark-test-", dir="/tmp"))
_SESSION.chmod(0o711)  # PostgreSQL's user needs access to directories below
os.environ["WAYMARK_VAR"] = str(_SESSION / "var")
# Use the address, because some machines cannot resolve the name localhost.
os.environ.setdefault("DJANGO_LIVE_TEST_SERVER_ADDRESS", "127.0.0.1")
# ZooKeeper need not survive a power cut here. With fsync, a busy disk delays its answers and ends sessions.
os.environ.setdefault("JDK_JAVA_OPTIONS", f"{class_archive.SHORT_LIVED} -Dzookeeper.forceSync=no")
# The directory of the run. xdist's workers inherit and share it, and the process that started the run removes it.
_RUN = Path(os.environ.setdefault("WAYMARK_TEST_RUN", str(_SESSION)))
# The archive of classes. xdist's workers inherit and share it, and the first worker that needs Java creates it.
_ARCHIVE = Path(os.environ.setdefault("WAYMARK_TEST_CLASS_ARCHIVE", str(_SESSION / "classes.jsa")))
_SERVER_MARKS = frozenset(("django_db", "spark", "zookeeper", "browser", "flink", "stack", "server", "nightly"))
_SERVER_FIXTURES = frozenset(
    ("db", "transactional_db", "live_server", "postgres_dsn", "redis_url", "zookeeper_hosts", "java_home", "page")
)
_BEGUN_FIRST = tuple(map(frozenset, (("stack",), ("long",), ("spark", "flink", "zookeeper", "browser"))))
_IS_LONG_RUN = "PYTEST_XDIST_WORKER" in os.environ
if _IS_LONG_RUN:
    os.environ.setdefault("SPARK_SUBMIT_OPTS", class_archive.options(_ARCHIVE))
# The settings need an address before a server runs. xdist's workers inherit it, and must also treat it as not set.
_NOT_STARTED = "postgresql://waymark@127.0.0.1:1/not-started"
os.environ.setdefault("DATABASE_URL", _NOT_STARTED)
_GIVEN = {
    name: None if os.environ.get(name) == _NOT_STARTED else os.environ.get(name)
    for name in ("DATABASE_URL", "REDIS_URL", "ZOOKEEPER_HOSTS")
}


def pytest_configure() -> None:
    """Replace settings that come from ./var of the checkout. They were loaded before this file."""
    from django.conf import settings

    settings.VAR_DIR = _SESSION / "var"
    settings.MAILBOX_DIR = settings.VAR_DIR / "mail"
    # Otherwise, each test client reads the properties of all static files.
    settings.WHITENOISE_AUTOREFRESH = True
    settings.SECRET_KEY, settings.SECRET_KEY_IS_SECRET = "a key of the tests' own, long enough for anybody", True


def pytest_report_header() -> str:
    return f"waymark: profile {profile.NAME}, seed {profile.SEED} (WAYMARK_TESTS, WAYMARK_TESTS_SEED)"


def pytest_itemcollected(item: pytest.Item) -> None:
    if not _needs_a_server(item):
        item.add_marker(pytest.mark.unit)


def _needs_a_server(item: pytest.Item) -> bool:
    """Return whether the marks or fixtures of a test need a server, a JVM or a browser."""
    fixtures = getattr(item, "fixturenames", ())
    return not (_SERVER_MARKS.isdisjoint(_marks(item)) and _SERVER_FIXTURES.isdisjoint(fixtures))


def _marks(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow files first, so that at the end no process runs a slow file while the others are idle.

    Refuse tests with the same id, because xdist runs only one of them.
    """
    if same := [id_ for id_, count in Counter(item.nodeid for item in items).items() if count > 1]:
        raise pytest.UsageError(f"several tests have the id {same[0]}")
    last = len(_BEGUN_FIRST)
    ranks = {item.path: last for item in items}
    for item in items:
        found = _marks(item)
        rank = next((rank for rank, marks in enumerate(_BEGUN_FIRST) if not marks.isdisjoint(found)), last)
        ranks[item.path] = min(rank, ranks[item.path])
    items.sort(key=lambda item: ranks[item.path])


def pytest_unconfigure() -> None:
    shutil.rmtree(_SESSION, ignore_errors=True)


@pytest.fixture(scope="session")
def session_directory() -> Path:
    """Return a short absolute path that every user can access, also PostgreSQL's. It is removed after the session."""
    return _SESSION


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield the directory of a file system with 1 MB."""
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
    """Return an address without the name localhost, which some machines cannot resolve."""
    return "127.0.0.1", 0


@pytest.fixture(scope="session")
def java_home(session_directory: Path) -> Iterator[Path]:
    """Yield the home of a Java for PySpark, and set JAVA_HOME. Under xdist, create the archive of classes."""
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
    """Yield the Spark session of the process. Afterwards restore its settings and stop the queries of the module."""
    from tests.spark_session import put_back

    with put_back(spark_of_the_process):
        yield spark_of_the_process


@pytest.fixture(scope="session")
def postgres_dsn(session_directory: Path) -> Iterator[str]:
    """Yield the address of a PostgreSQL server with a separate database for tests that do not use Django."""
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
    from django.core.management import get_commands
    from django.db import connection
    from environs import Env

    from tests.database import EmptyTables

    os.environ["DATABASE_URL"] = postgres_dsn
    settings.DATABASES["default"].update(Env().dj_db_url("DATABASE_URL"))
    if _IS_LONG_RUN and not _GIVEN["DATABASE_URL"]:
        connection.settings_dict["TEST"].update(TEMPLATE=database.MIGRATED, MIGRATE=False)
    if not _GIVEN["DATABASE_URL"]:
        get_commands()["flush"] = EmptyTables()  # needs a superuser


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
    """Use the Chromium of the system. If there is none, Playwright uses its own, if installed."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next(filter(None, map(shutil.which, names)), None)
    arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
    return {**browser_type_launch_args, "args": arguments, **({"executable_path": found} if found else {})}


# The fixtures of pytest-playwright keep an event loop until the process ends, so that no later asyncio test can run in
# the thread. These fixtures end with each file.
@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started, pytest.MonkeyPatch.context() as patch:
        # Because of the event loop, Django would refuse synchronous database calls.
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
    """Yield the `host:port` of a real ZooKeeper. Each test uses a separate root (`/test-<uuid>`)."""
    if _GIVEN["ZOOKEEPER_HOSTS"]:
        yield _GIVEN["ZOOKEEPER_HOSTS"]
        return
    from dashboard.stack.ports import any_free
    from dashboard.stack.process import running
    from dashboard.stack.zookeeper import ZooKeeperServer

    server = ZooKeeperServer(session_directory / "zookeeper", any_free(), java_home, tick_ms=500)
    with running(server, log=session_directory / "zookeeper.log"):
        yield server.address
