# ruff: noqa: ASYNC240  (a test may block its own loop for a moment)
"""The job manager creates Python environments from requirements and archives, once per content, and removes them."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from checkpointing.clock import SystemClock
from checkpointing.jobs.python_environments import cache
from checkpointing.jobs.python_environments.cache import READY, CachedEnvironment, EnvironmentCache
from checkpointing.jobs.python_environments.commands import Deadline, run
from checkpointing.jobs.python_environments.environments import PythonEnvironments
from checkpointing.jobs.python_environments.failures import EnvironmentFailed
from checkpointing.jobs.python_environments.preparation import Preparation, PreparedPython, SourceKind, Step
from checkpointing.jobs.python_environments.source import EnvironmentSource
from checkpointing.storage.opening import files_for
from tests.checkpointing.jobs.package_index import OURS, Index, hash_of, pip_settings, serving, wheel, wheels
from tests.checkpointing.jobs.running_job_manager import eventually

GIB = 1 << 30


@pytest.fixture
def house(tmp_path: Path) -> Path:
    return wheels(tmp_path / "wheels", colours="1.0")


@pytest.fixture
def index(house: Path) -> Iterator[Index]:
    with serving(Index(house)) as index:
        yield index


def environments(
    directory: Path, settings: dict[str, str], *, limit_s: float = 120.0, most_bytes: int = GIB
) -> PythonEnvironments:
    environ = {**os.environ, **settings}
    return PythonEnvironments(directory, environ, SystemClock(), limit_s=limit_s, most_bytes=most_bytes)


def offline(house: Path) -> dict[str, str]:
    return pip_settings(no_index="1", find_links=str(house))


def of(text: str) -> tuple[EnvironmentSource, Preparation]:
    return EnvironmentSource(SourceKind.REQUIREMENTS, text), Preparation(SourceKind.REQUIREMENTS, 1)


def of_archive(path: Path) -> tuple[EnvironmentSource, Preparation]:
    return EnvironmentSource(SourceKind.ARCHIVE, str(path)), Preparation(SourceKind.ARCHIVE, 1)


def output_of(prepared: PreparedPython, code: str) -> str:
    return subprocess.run([prepared.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def made_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


async def test_requirements_are_installed_once_with_the_packages_of_a_driver(tmp_path: Path, house: Path) -> None:
    cache = tmp_path / "environments"
    first, second = environments(cache, offline(house)), environments(cache, offline(house))

    both = await asyncio.gather(first.prepare(*of("colours==1.0\n")), first.prepare(*of("colours==1.0\n")))
    again = await second.prepare(*of("colours==1.0\n"))

    assert both[0] == both[1] == again
    assert made_in(cache) == [again.name]
    code = "import colours, pyspark, kazoo, sys; print(colours.version, pyspark.version, sys.prefix)"
    assert output_of(again, code) == f"1.0 4.2.1 {cache / again.name / 'environment'}"

    wheel(house, "colours", "2.0")
    other = await second.prepare(*of("colours==2.0\n"))
    assert (other != again, output_of(other, "import colours; print(colours.version)")) == (True, "2.0")


async def test_a_requirement_that_cannot_be_installed_is_named(tmp_path: Path, house: Path) -> None:
    maker = environments(tmp_path / "environments", offline(house))
    says = r"^waymark\.python\.requirements: pip could not install.*requirement colours==9.*1\.0"
    with pytest.raises(EnvironmentFailed, match=says) as failed:
        await maker.prepare(*of("colours==9\n"))
    assert failed.value.is_mistake
    assert "No matching distribution found for colours==9" in failed.value.details

    with pytest.raises(EnvironmentFailed, match=r"pyspark.*conflicting") as conflict:
        await maker.prepare(*of("pyspark==3.5.0\n"))
    assert conflict.value.is_mistake
    assert made_in(tmp_path / "environments") == []


@pytest.mark.nightly
async def test_either_all_requirements_or_none_have_hashes(tmp_path: Path, house: Path) -> None:
    maker = environments(tmp_path / "environments", offline(house))
    colours = f"colours==1.0 {hash_of(house / 'colours-1.0-py3-none-any.whl')}\n"

    with pytest.raises(EnvironmentFailed, match=r"it lacks pyspark, .*with their hashes") as lacking:
        await maker.prepare(*of(colours))
    with pytest.raises(EnvironmentFailed, match="DO NOT MATCH THE HASHES") as wrong:
        await maker.prepare(*of(f"colours==1.0 --hash=sha256:{'0' * 64}\n"))
    assert lacking.value.is_mistake
    assert wrong.value.is_mistake

    ours = (
        f"{name}=={version} {hash_of(house / f'{name}-{version}-py3-none-any.whl')}" for name, version in OURS.items()
    )
    whole = await maker.prepare(*of(colours + "\n".join(ours)))
    assert output_of(whole, "import colours; print(colours.version)") == "1.0"


@pytest.mark.nightly
async def test_an_unreachable_index_is_a_transient_error(tmp_path: Path, index: Index) -> None:
    maker = environments(tmp_path / "environments", pip_settings(index_url=index.url))
    index.status = 503
    with pytest.raises(EnvironmentFailed, match="pip could not reach") as unavailable:
        await maker.prepare(*of("colours\n"))
    index.status = 200
    closed = environments(tmp_path / "environments", pip_settings(index_url="http://127.0.0.1:9/simple/"))
    with pytest.raises(EnvironmentFailed, match=r"Could not fetch URL http://127\.0\.0\.1:9/.*refused") as refused:
        await closed.prepare(*of("colours\n"))
    assert not unavailable.value.is_mistake
    assert not refused.value.is_mistake

    with pytest.raises(EnvironmentFailed, match="pip could not install") as unknown:
        await maker.prepare(*of("nothing\n"))
    assert unknown.value.is_mistake
    assert output_of(await maker.prepare(*of("colours\n")), "import colours; print(colours.version)") == "1.0"


@pytest.mark.nightly
async def test_the_time_is_limited_and_no_job_waits_for_one_that_timed_out(tmp_path: Path, index: Index) -> None:
    cache = tmp_path / "environments"
    settings = pip_settings(index_url=index.url)
    index.gate.clear()
    with pytest.raises(EnvironmentFailed, match=r"not ready after 3 s \(WAYMARK_ENVIRONMENT_TIMEOUT\)") as late:
        await environments(cache, settings, limit_s=3.0).prepare(*of("colours\n"))
    assert not late.value.is_mistake

    maker = environments(cache, settings)
    source, preparation = of("colours\n")
    _, waiting = of("colours\n")
    seen = index.requests
    given_up = asyncio.create_task(maker.prepare(source, preparation))
    await eventually(lambda: index.requests > seen)
    second = asyncio.create_task(maker.prepare(source, waiting))
    await eventually(lambda: (preparation.step, waiting.step) == (Step.INSTALLING, Step.WAITING))
    given_up.cancel()
    await asyncio.wait([given_up])
    await eventually(lambda: waiting.step is Step.INSTALLING)
    index.gate.set()
    assert made_in(cache) == [(await second).name], "nothing of the others is left"
    assert (preparation.status, waiting.status) == ("FAILED", "READY")


KILLED = """\
import asyncio, os, sys
from pathlib import Path
from checkpointing.clock import SystemClock
from checkpointing.jobs.python_environments.environments import PythonEnvironments
from checkpointing.jobs.python_environments.preparation import Preparation, SourceKind
from checkpointing.jobs.python_environments.source import EnvironmentSource
maker = PythonEnvironments(Path(sys.argv[1]), os.environ, SystemClock(), limit_s=100, most_bytes=1)
kind = SourceKind.REQUIREMENTS
asyncio.run(maker.prepare(EnvironmentSource(kind, "colours"), Preparation(kind, 1)))
"""


@pytest.mark.nightly
async def test_a_job_manager_that_is_killed_leaves_nothing_that_is_used(tmp_path: Path, index: Index) -> None:
    cache, settings = tmp_path / "environments", pip_settings(index_url=index.url)
    index.gate.clear()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, str(cache), env={**os.environ, **settings}
    )
    await eventually(lambda: index.requests)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    (half_made,) = made_in(cache)
    index.gate.set()

    maker = environments(cache, settings)
    whole = await maker.prepare(*of("colours"))
    assert whole.name != half_made
    assert maker.remove_unused({whole.name}, 0) == [], "another job manager may be making it"
    long_ago = 1_000_000_000
    os.utime(cache / half_made, (long_ago, long_ago))
    assert maker.remove_unused({whole.name}, 0) == [half_made]
    assert made_in(cache) == [whole.name]


def test_only_unused_environments_are_removed(tmp_path: Path) -> None:
    cache = EnvironmentCache(tmp_path / "environments", SystemClock(), 3600.0)
    needed, unused, recent = (made(cache, number * "1" + "0" * (32 - number)) for number in range(3))
    (cache.directory / "of somebody else").mkdir()
    for name in (needed, unused):
        os.utime(cache.directory / name / READY, (1_000, 1_000))

    assert cache.remove_unused({needed}, 2_000_000) == [unused]
    assert made_in(cache.directory) == sorted([needed, recent, "of somebody else"])

    os.utime(cache.directory / recent / READY, (1_000, 1_000))
    assert cache.find(recent.partition("-")[0]) is not None
    assert cache.remove_unused({needed}, 2_000_000) == [], "it has just been used"

    with cache.new("9" * 32) as begun:
        os.utime(begun.directory, (1_000, 1_000))
        assert cache.remove_unused({needed}, 2_000_000) == [], "it is being made"
    assert not begun.directory.exists()


def made(cache: EnvironmentCache, key: str) -> str:
    with cache.new(key) as environment:
        environment.python.parent.mkdir(parents=True)
        environment.python.symlink_to(sys.executable)
        cache.publish(environment, None)
    return environment.directory.name


async def test_an_environment_that_another_job_manager_removes_is_a_transient_error(tmp_path: Path) -> None:
    archive = packed(tmp_path / "env.tar.gz", [member("bin/python", sys.executable)])

    class Emptied(EnvironmentCache):
        def find(self, key: str) -> CachedEnvironment | None:
            raise FileNotFoundError(2, "No such file or directory", str(self.directory / key / READY))

    maker = environments(tmp_path / "environments", {})
    maker._cache = Emptied(tmp_path / "environments", SystemClock(), 1.0)
    with pytest.raises(EnvironmentFailed, match=r"could not be made in .*ready\.json") as removed:
        await maker.prepare(*of_archive(archive))
    assert not removed.value.is_mistake


async def test_a_full_disk_is_a_transient_error_and_leaves_no_files(
    tmp_path: Path, house: Path, small_disk: Path
) -> None:
    large = wheel(house, "large", "1.0")
    with zipfile.ZipFile(large, "a") as more:
        more.writestr("large/data", b"x" * 2_000_000)
    maker = environments(small_disk, offline(house))
    with pytest.raises(EnvironmentFailed, match=r"this machine has no room for the environment: .*No space") as full:
        await maker.prepare(*of("large\n"))
    assert str(full.value).startswith("waymark.python.requirements: ")
    assert not full.value.is_mistake
    assert made_in(small_disk) == []


async def test_a_job_manager_without_pip_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(EnvironmentFailed, match="the job manager's Python has no pip; install it there") as without:
        await environments(tmp_path / "environments", {}).prepare(*of("colours\n"))
    assert not without.value.is_mistake


async def test_the_last_line_of_a_command_is_shown_without_the_password_of_an_index(tmp_path: Path) -> None:
    line = "Looking in indexes: https://me:hunter2@pypi.internal/simple"
    preparation = of("")[1]
    deadline = Deadline(SystemClock(), 120.0, preparation)
    code = (
        f"import pathlib, time\nprint({line!r}, flush=True)\nwhile not pathlib.Path('seen').exists(): time.sleep(0.01)"
    )
    running = asyncio.create_task(asyncio.to_thread(run, [sys.executable, "-c", code], {}, tmp_path, deadline))
    await eventually(lambda: preparation.output)
    (tmp_path / "seen").touch()

    shown = line.replace("hunter2", "******")
    assert preparation.output == shown
    assert await running == (0, [shown])


@pytest.mark.nightly
async def test_an_environment_without_its_python_is_prepared_again(tmp_path: Path, house: Path) -> None:
    maker = environments(tmp_path / "environments", offline(house))
    broken = await maker.prepare(*of("colours"))
    Path(broken.python).unlink()
    assert (await maker.prepare(*of("colours"))).name != broken.name


# --- archives -------------------------------------------------------------------------------------------------------


def packed(path: Path, members: Sequence[tarfile.TarInfo | Path], root: Path | None = None) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if isinstance(member, Path):
                tar.add(member, str(member.relative_to(root or member.parent)), recursive=False)
            else:
                tar.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def member(name: str, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    if link:
        info.type, info.linkname = tarfile.SYMTYPE, link
    return info


async def packed_environment(tmp_path: Path, house: Path) -> Path:
    """Pack an environment as venv-pack does: `bin/python` is a link to the original Python."""
    made = await environments(tmp_path / "made", offline(house)).prepare(*of("colours"))
    home = tmp_path / "made" / made.name / "environment"
    (home / "bin" / "conda-unpack").write_text("from pathlib import Path\nPath('unpacked').touch()\n")
    return packed(tmp_path / "env.tar.gz", sorted(home.rglob("*")), home)


async def test_an_archive_is_unpacked_once_for_each_content(tmp_path: Path, house: Path) -> None:
    archive = await packed_environment(tmp_path, house)
    maker = environments(tmp_path / "environments", {})

    first = await maker.prepare(*of_archive(archive))
    assert output_of(first, "import colours; print(colours.version)") == "1.0"
    assert (tmp_path / "environments" / first.name / "unpacked").exists(), "conda-unpack has run"
    assert await maker.prepare(*of_archive(archive.rename(tmp_path / "other name.tar.gz"))) == first

    by_address = EnvironmentSource(SourceKind.ARCHIVE, "jobmanager://memory/archives/env.tar.gz")
    _put(by_address.value, (tmp_path / "other name.tar.gz").read_bytes())
    assert await maker.prepare(by_address, Preparation(SourceKind.ARCHIVE, 1)) == first
    assert made_in(tmp_path / "environments") == [first.name]


@pytest.mark.nightly
async def test_a_remote_archive_is_read_once_for_each_size(
    tmp_path: Path, house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (await packed_environment(tmp_path, house)).read_bytes()
    source = EnvironmentSource(SourceKind.ARCHIVE, "jobmanager://memory/archives/once.tar.gz")
    _put(source.value, content)
    maker = environments(tmp_path / "environments", {})
    first = await maker.prepare(source, Preparation(SourceKind.ARCHIVE, 1))

    _put(source.value, b"x" * len(content))
    assert await maker.prepare(source, Preparation(SourceKind.ARCHIVE, 1)) == first
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_VERSION", 0)  # that of a job manager whose drivers need other packages
        with pytest.raises(EnvironmentFailed, match="it is not a tar file"):
            await maker.prepare(source, Preparation(SourceKind.ARCHIVE, 1))
    _put(source.value, b"x" * (len(content) + 1))
    with pytest.raises(EnvironmentFailed, match="it is not a tar file"):
        await maker.prepare(source, Preparation(SourceKind.ARCHIVE, 1))


def _put(location: str, content: bytes) -> None:
    files_for(location).write_durably(location, content)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([member("../escaped", size=1)], "outside the destination"),
        ([member("/tmp/escaped", size=1), member("lib/a", "/etc/passwd")], "absolute path"),
        ([member("lib/a", "../../../outside")], "outside the destination"),
        ([member("lib", ".."), member("lib/escaped", size=1)], "outside the destination"),
        ([member("bin/python", "/nowhere/python3")], "link to /nowhere/python3, which is not on this machine"),
        ([member("bin/python", "/etc/passwd")], "link to /etc/passwd, which is not on this machine"),
        ([member("lib/a", size=2000), member("lib/b", size=2000)], r"larger than 3000 bytes unpacked \(WAYMARK_MAX"),
        ([member("lib/a", size=10)], "has no bin/python at its top"),
    ],
)
async def test_an_archive_that_leads_out_or_is_not_an_environment_is_refused(
    tmp_path: Path, members: list[tarfile.TarInfo | Path], message: str
) -> None:
    archive = packed(tmp_path / "env.tar.gz", members)
    maker = environments(tmp_path / "environments", {}, most_bytes=3000)
    with pytest.raises(EnvironmentFailed, match=message) as refused:
        await maker.prepare(*of_archive(archive))
    assert str(refused.value).startswith(f"waymark.python.archive: {archive}: the archive ")
    assert refused.value.is_mistake
    assert made_in(tmp_path / "environments") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["env.tar.gz", "environments"]


async def test_a_truncated_archive_or_one_without_required_packages_is_refused(tmp_path: Path) -> None:
    maker = environments(tmp_path / "environments", {})
    python = Path(sys.executable).resolve()
    lacking = packed(tmp_path / "lacking.tar.gz", [member("bin/python", str(python))])
    with pytest.raises(EnvironmentFailed, match="cannot run a driver"):
        await maker.prepare(*of_archive(lacking))
    (tmp_path / "cut.tar.gz").write_bytes(lacking.read_bytes()[:40])
    with pytest.raises(EnvironmentFailed, match="it is not a tar file"):
        await maker.prepare(*of_archive(tmp_path / "cut.tar.gz"))
    with pytest.raises(EnvironmentFailed, match=r"missing\.tar\.gz: the file does not exist") as missing:
        await maker.prepare(*of_archive(tmp_path / "missing.tar.gz"))
    assert missing.value.is_mistake


@pytest.mark.parametrize("mount_point", ["missing", "empty"])
async def test_an_archive_that_may_be_unmounted_is_a_transient_error(tmp_path: Path, mount_point: str) -> None:
    place = tmp_path / "mounted"
    if mount_point == "empty":
        place.mkdir()
    with pytest.raises(EnvironmentFailed, match=r"env\.tar\.gz: the file does not exist") as missing:
        await environments(tmp_path / "environments", {}).prepare(*of_archive(place / "env.tar.gz"))
    assert not missing.value.is_mistake


@pytest.mark.parametrize("form", ["gz", "bz2", "xz"])
async def test_a_damaged_archive_is_refused(tmp_path: Path, form: str) -> None:
    archive = tmp_path / f"env.tar.{form}"
    with tarfile.open(archive, f"w:{form}") as tar:
        tar.addfile(member("lib/a", size=400_000), io.BytesIO(bytes(hashlib.shake_128(b"").digest(400_000))))
    content = bytearray(archive.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    archive.write_bytes(content)
    with pytest.raises(EnvironmentFailed, match="or it is damaged") as damaged:
        await environments(tmp_path / "environments", {}).prepare(*of_archive(archive))
    assert damaged.value.is_mistake
    assert made_in(tmp_path / "environments") == []


async def test_an_archive_that_does_not_fit_on_the_disk_is_a_transient_error(tmp_path: Path, small_disk: Path) -> None:
    archive = packed(tmp_path / "env.tar.gz", [member("lib/a", size=2_000_000)])
    with pytest.raises(EnvironmentFailed, match=rf"could not be made in {small_disk}: .*No space left") as full:
        await environments(small_disk, {}).prepare(*of_archive(archive))
    assert not full.value.is_mistake
    assert made_in(small_disk) == []


MADE = """\
import asyncio, itertools, json, os, signal, sys
from pathlib import Path
from checkpointing.clock import SystemClock
from checkpointing.jobs.python_environments.cache import EnvironmentCache, key_of
from checkpointing.jobs.python_environments.environments import PythonEnvironments
from checkpointing.jobs.python_environments.preparation import Preparation, SourceKind
from checkpointing.jobs.python_environments.source import EnvironmentSource
from checkpointing.storage.checksums import sha256_of

archive, directory = Path(sys.argv[1]), Path(sys.argv[2])
CHANGES = {"os.mkdir", "os.rename", "os.symlink", "os.link", "os.remove", "subprocess.Popen"}


def is_change(event, args):
    if event == "open":
        return args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    return event in CHANGES or (event == "os.utime" and str(args[0]).endswith("ready.json"))


def made_until(change):
    left = [change]

    def kill_before(event, args):
        if is_change(event, args):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(kill_before)
    maker = PythonEnvironments(directory, os.environ, SystemClock(), limit_s=100, most_bytes=10**9)
    kind = SourceKind.ARCHIVE
    asyncio.run(maker.prepare(EnvironmentSource(kind, str(archive)), Preparation(kind, 1)))
    os._exit(0)


def files_to_use():
    cache = EnvironmentCache(directory, SystemClock(), 0)
    found = cache.find(key_of(SourceKind.ARCHIVE, sha256_of(archive)))
    return None if found is None else len(list(found.home.rglob("*")))


for change in itertools.count(1):
    pid = os.fork()
    if pid == 0:
        made_until(change)
    killed = os.waitpid(pid, 0)[1] != 0
    print(json.dumps([killed, files_to_use()]), flush=True)
    if not killed:
        break
"""


@pytest.mark.nightly
async def test_a_kill_between_any_two_steps_leaves_no_incomplete_environment_that_is_used(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    python = home / "bin" / "python"  # a file, as in archives of conda-pack
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o700)
    for number in range(10):
        (home / f"library-{number}").write_text("x")
    archive = packed(tmp_path / "env.tar.gz", sorted(home.rglob("*")), home)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MADE, str(archive), str(tmp_path / "environments"), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    results = [json.loads(line) for line in output.splitlines()]

    assert len(results) > 15
    assert results[-1][0] is False, "it is made at last, beside what the kills left"
    assert {found for _, found in results} == {None, 12}
