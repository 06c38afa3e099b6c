"""The job manager encrypts all stored secrets of jobs. Its keys can be set and changed at any time."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography.fernet import Fernet

from checkpointing import main as jobmanager
from checkpointing.ha.errors import JobGraphUnreadable
from checkpointing.ha.job_graphs import HandleJobGraphStore
from checkpointing.ha.state_handles import InMemoryStateHandleStore
from checkpointing.jobs.secret_keys import FILE_NAME, SecretKeys, SecretUnreadable
from checkpointing.jobs.settings import InvalidSettings, JobManagerSettings
from checkpointing.masking import HIDDEN
from checkpointing.model.job_environment import SEALED
from checkpointing.model.job_graph import JobGraph
from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.fake_driver import FakeDriver, FakeLauncher
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually, running_job_manager

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()
SECRETS = {"waymark.secret.DB_PASSWORD": "hunter2", "waymark.secret-file.KEY": "-----hunter3-----"}
CONFIGURATION = {
    "waymark.env.STAGE": "production",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "20 ms",
    **SECRETS,
}
GRAPH = JobGraph("0" * 32, "job", "jar", "p:main", configuration=CONFIGURATION)


def with_plain_secrets(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and b"hunter" in path.read_bytes()]


def test_only_declared_secrets_are_encrypted_and_each_key_decrypts_its_secrets() -> None:
    sealed = SecretKeys([OLD]).seal_new(GRAPH)

    assert sealed.configuration["waymark.env.STAGE"] == "production"
    assert all(sealed.configuration[key].startswith(SEALED) for key in SECRETS)
    assert "hunter" not in json.dumps(sealed.to_json())
    assert SecretKeys([NEW, OLD]).opened(sealed.configuration) == CONFIGURATION


def test_plain_records_and_records_of_a_former_key_are_sealed_with_the_first_key() -> None:
    by_former, rotated, new = SecretKeys([OLD]).seal_new(GRAPH), SecretKeys([NEW, OLD]), SecretKeys([NEW])

    for graph in (GRAPH, by_former):
        assert new.opened(rotated.seal(graph).configuration) == CONFIGURATION
    once = rotated.seal(GRAPH)
    assert rotated.seal(once) == once


def test_a_secret_that_no_key_decrypts_is_named_kept_and_never_used() -> None:
    sealed = SecretKeys([OLD]).seal_new(GRAPH)
    wrong = SecretKeys([NEW])

    with pytest.raises(SecretUnreadable, match=r"waymark\.secret.* cannot be decrypted.*WAYMARK_JOBMANAGER_SECRET"):
        wrong.opened(sealed.configuration)
    assert wrong.seal(sealed) == sealed
    assert wrong.opened_or_hidden(sealed.configuration) == {**CONFIGURATION, **dict.fromkeys(SECRETS, HIDDEN)}


def test_a_secret_that_looks_encrypted_is_not_changed() -> None:
    odd = replace(GRAPH, configuration={"waymark.secret.ODD": f"{SEALED}gAAAA"})
    assert SecretKeys([OLD]).opened(SecretKeys([OLD]).seal_new(odd).configuration) == odd.configuration


def test_job_managers_that_start_at_once_make_one_private_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: SecretKeys.read((), tmp_path), range(16)))

    for keys in made:
        assert made[0].opened(keys.seal_new(GRAPH).configuration) == CONFIGURATION
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


def test_a_configured_key_seals_while_the_former_key_file_still_decrypts(tmp_path: Path) -> None:
    by_file = SecretKeys.read((), tmp_path).seal_new(GRAPH)
    keys = SecretKeys.read((NEW,), tmp_path)

    assert SecretKeys([NEW]).opened(keys.seal(by_file).configuration) == CONFIGURATION
    SecretKeys.read((NEW,), tmp_path / "other")
    assert not (tmp_path / "other").exists(), "no file where a key is set"


def test_keys_are_checked_at_the_start_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{NEW},{OLD}\n")
    environ = {"WAYMARK_JOBMANAGER_SECRET_KEYS_FILE": str(file)}
    settings = JobManagerSettings.from_environ(environ)
    assert settings.secret_keys == (NEW, OLD)
    assert NEW not in repr(settings)

    with pytest.raises(InvalidSettings, match="WAYMARK_JOBMANAGER_SECRET_KEYS: key 2 is not allowed") as refused:
        JobManagerSettings.from_environ({"WAYMARK_JOBMANAGER_SECRET_KEYS": f"{NEW},hunter2"})
    assert "hunter2" not in str(refused.value)


def test_a_version_that_cannot_open_secrets_does_not_start_the_job(tmp_path: Path) -> None:
    """An older Waymark reads only graphs of version 1. Graphs without secrets still have this version."""
    store = HandleJobGraphStore(InMemoryStateHandleStore(), tmp_path)
    versions = []
    for graph in (SecretKeys([OLD]).seal_new(GRAPH), replace(GRAPH, configuration={})):
        store.put(graph)
        assert store.recover(graph.job_id) == graph
        versions += [json.loads(path.read_text())["version"] for path in tmp_path.glob("*.json")]
    assert versions == [2, 1]

    (file,) = tmp_path.glob("*.json")
    file.write_text(file.read_text().replace('"version": 1', '"version": 3'))
    with pytest.raises(JobGraphUnreadable, match="version 3"):
        store.recover(GRAPH.job_id)


async def test_an_ended_job_keeps_its_secrets_encrypted(tmp_path: Path) -> None:
    async with running_job_manager(tmp_path) as first:
        job_id = await first.submit_running(CONFIGURATION)
        await first.checkpoint(job_id)
        await first.savepoint(job_id)
        await first.cancel(job_id)
        await first.until(job_id, "CANCELED")
        assert (await first.get(f"/jobs/{job_id}/launch"))["flinkConfiguration"] == CONFIGURATION
    assert with_plain_secrets(tmp_path / "state") == []

    async with running_job_manager(tmp_path) as second:
        assert (await second.get(f"/jobs/{job_id}/launch"))["flinkConfiguration"] == CONFIGURATION
        assert "hunter" not in json.dumps(await second.get(f"/jobs/{job_id}/config"))

    async with running_job_manager(tmp_path, WAYMARK_JOBMANAGER_SECRET_KEYS=NEW) as rotated:
        assert (await rotated.get(f"/jobs/{job_id}/launch"))["flinkConfiguration"] == CONFIGURATION

    (tmp_path / "state" / FILE_NAME).unlink()
    async with running_job_manager(tmp_path) as without:
        launch = await without.get(f"/jobs/{job_id}/launch")
        assert launch["flinkConfiguration"] == {**CONFIGURATION, **dict.fromkeys(SECRETS, HIDDEN)}
        jar_id = launch.pop("jarId")
        with pytest.raises(RequestRefused, match="has a hidden value"):
            await without.post(f"/jars/{jar_id}/run", launch)


@pytest_asyncio.fixture
async def successors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Successors]:
    """Yield job managers that run one after the other and share stored graphs, state directory and drivers."""
    handles, make_services = InMemoryStateHandleStore(), jobmanager.make_services

    def make(*args: Any) -> Any:
        services: Any = make_services(*args)
        services.job_graphs = HandleJobGraphStore(handles, tmp_path / "state" / "ha" / "execution-plans")
        return services

    monkeypatch.setattr(jobmanager, "make_services", make)
    successors = Successors(tmp_path)
    yield successors
    await successors.launcher.close()


class Successors:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.launcher = FakeLauncher(asyncio.get_running_loop())

    @property
    def graph_file(self) -> Path:
        (file,) = (self.directory / "state" / "ha" / "execution-plans").glob("*.json")
        return file

    @asynccontextmanager
    async def job_manager(self, keys: str) -> AsyncIterator[RunningJobManager]:
        environ = {"WAYMARK_JOBMANAGER_SECRET_KEYS": keys, "WAYMARK_DRIVERS_ON_SHUTDOWN": "leave"}
        async with running_job_manager(self.directory, self.launcher, **environ) as manager:
            for driver in self.launcher.drivers:
                driver.address = manager.address
            yield manager

    def newest_of(self, job_id: str) -> FakeDriver:
        return [driver for driver in self.launcher.drivers if driver.spec.job_id == job_id][-1]


async def test_the_next_leader_encrypts_plain_secrets_and_rotates_keys(successors: Successors) -> None:
    state = successors.directory / "state"
    async with successors.job_manager(OLD) as first:
        job_id = await first.submit_running(CONFIGURATION)
    assert with_plain_secrets(state) == []
    stored = json.loads(successors.graph_file.read_text())["graph"]
    successors.graph_file.write_text(json.dumps({"version": 1, "graph": {**stored, "configuration": CONFIGURATION}}))
    assert with_plain_secrets(state) == [successors.graph_file]

    for keys in (OLD, f"{NEW},{OLD}"):
        async with successors.job_manager(keys) as leader:
            await leader.until(job_id, "RUNNING")
        assert with_plain_secrets(state) == []

    async with successors.job_manager(NEW) as last:
        await last.until(job_id, "RUNNING")
        assert (await last.get(f"/jobs/{job_id}/launch"))["flinkConfiguration"] == CONFIGURATION
        before = successors.newest_of(job_id)
        before.kill(-9)
        await eventually(lambda: successors.newest_of(job_id) is not before)
        environment = successors.newest_of(job_id).spec.environment
        assert environment.secrets == {"DB_PASSWORD": "hunter2"}
        assert environment.secret_files == {"KEY": "-----hunter3-----"}
        await last.cancel(job_id)
        await last.until(job_id, "CANCELED")


async def test_only_the_job_whose_key_is_missing_waits(successors: Successors) -> None:
    """The job's driver continues in the meantime. With the key, the job can be restarted again."""
    async with successors.job_manager(OLD) as first:
        job_id = await first.submit_running(CONFIGURATION)

    async with successors.job_manager(NEW) as wrong:
        await wrong.until(job_id, "RUNNING")
        other = await wrong.submit_running(CONFIGURATION)
        successors.newest_of(job_id).kill(-9)

        async def reports_unreadable_secret() -> bool:
            history = (await wrong.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
            return any(entry["exceptionName"] == "SecretUnreadable" for entry in history)

        await eventually(reports_unreadable_secret)
        assert await wrong.status(job_id) != "FAILED"
        assert await wrong.status(other) == "RUNNING"
        await wrong.cancel(other)
        await wrong.until(other, "CANCELED")

    async with successors.job_manager(f"{NEW},{OLD}") as right:
        await right.until(job_id, "RUNNING")
        await right.cancel(job_id)
        await right.until(job_id, "CANCELED")
