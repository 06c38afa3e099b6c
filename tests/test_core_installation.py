"""An environment with only the core's packages, as on a machine that only monitors Flink."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from dashboard.stack.composition import get
from dashboard.stack.extras import EXTRAS
from dashboard.stack.parts import Program
from dashboard.stack.ports import any_free
from dashboard.stack.process import Command, running
from tests.import_graph import ROOT
from tests.test_dependencies import IMPORT_ALL, core, reached_by_core

pytestmark = [pytest.mark.nightly, pytest.mark.long]
MOST = 450 * 2**20  # bytes, with the bytecode that pip writes


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with the locked versions of the core's packages. Skip the tests if pip fails."""
    home = tmp_path_factory.mktemp("core") / "venv"
    venv.create(home, symlinks=True)
    constraints = home / "locked.txt"
    locked = re.findall(
        r"^([\w.-]+)(?:\[.*\])?(==[^\\\n]+?) \\$", (ROOT / "requirements.txt").read_text(), re.MULTILINE
    )
    constraints.write_text("\n".join(name + version for name, version in locked))  # pip takes no extras in constraints
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--quiet", "--compile"]
    wanted = map(str, core().values())
    done = subprocess.run([*pip, "--constraint", str(constraints), *wanted], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"pip installs no core: {(done.stderr.strip().splitlines() or ['it failed'])[-1]}")
    return home


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory, postgres_dsn: str, redis_url: str) -> Iterator[dict[str, str]]:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("CREATE DATABASE core_only")
        yield {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
            "WAYMARK_VAR": str(tmp_path_factory.mktemp("var")),
            "WAYMARK_SECRET_KEY": "a key that is long enough for this test and for nothing else",
            "DATABASE_URL": urlsplit(postgres_dsn)._replace(path="/core_only").geturl(),
            "REDIS_URL": redis_url,
        }
        connection.execute("DROP DATABASE core_only WITH (FORCE)")


def python(home: Path, environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([home / "bin" / "python", *arguments], cwd=ROOT, env=environ, capture_output=True, text=True)


def test_the_packages_of_the_core_are_small(home: Path) -> None:
    [site] = home.glob("lib/python*/site-packages")
    sizes = Counter[str]()
    bytecode = 0
    for file in site.rglob("*"):
        if file.is_file():
            size = file.stat().st_size
            sizes[file.relative_to(site).parts[0]] += size
            bytecode += size if file.suffix == ".pyc" else 0
    largest = ", ".join(f"{name} {size / 2**20:.0f}" for name, size in sizes.most_common(8))
    text = f"{sizes.total() / 2**20:.0f} MiB, {bytecode / 2**20:.0f} of it bytecode; {largest}"
    print("the core's packages:", text)
    assert sizes.total() <= MOST, text


def test_everything_of_the_core_is_imported(home: Path, environ: dict[str, str]) -> None:
    done = python(home, environ, "-c", IMPORT_ALL.format(absent=[], modules=sorted(reached_by_core())))
    assert done.returncode == 0, done.stderr[-2000:]


def test_check_finds_nothing_wrong(home: Path, environ: dict[str, str]) -> None:
    done = python(home, environ, "manage.py", "check")
    assert (done.returncode, done.stderr) == (0, "")


def test_doctor_lists_the_extras_and_finds_no_problem(home: Path, environ: dict[str, str]) -> None:
    lines = python(home, environ, "manage.py", "doctor").stdout.splitlines()
    extras = [line for line in lines if "  Extra " in line]
    assert len(extras) == len(EXTRAS)
    assert all(" not installed" in line for line in extras)
    # Ignore problems of a small machine.
    problems = [line for line in lines if line.startswith("PROBLEM") and not re.search("  (Memory|Disk): ", line)]
    assert problems == []


def test_the_job_manager_names_the_extra_that_it_needs(home: Path, environ: dict[str, str]) -> None:
    done = python(home, environ, "manage.py", "jobmanager")
    assert done.stderr.startswith("CommandError: `manage.py jobmanager` needs PySpark, which is not installed. ")


def test_a_page_is_served(home: Path, environ: dict[str, str], tmp_path: Path) -> None:
    migrated = python(home, environ, "manage.py", "migrate", "--verbosity", "0")
    assert migrated.returncode == 0, migrated.stderr
    port = any_free()
    command = Command((str(home / "bin" / "python"), "manage.py", "web", "--port", str(port)), environ, ROOT)
    url = f"http://127.0.0.1:{port}"
    web = Program("web", url, command, probe=lambda: get(f"{url}/healthz")[0] == 200)
    with running(web, log=tmp_path / "web.log"):
        status, body = get(f"{url}/login/", 30)
    assert status == 200
    assert b"password" in body
