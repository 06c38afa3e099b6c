"""`manage.py submit` with a running job manager."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from checkpointing.jobs.launching.admission import Lacking
from checkpointing.model.job_environment import JobEnvironment
from checkpointing.rest.client import JobManagerClient, JobManagerUnreachable, RequestRefused
from checkpointing.rest.job_operations import time_text
from checkpointing.rest.submission import JobFailed, Submission, follow
from checkpointing.spark.restore import UNNAMED
from checkpointing.storage import verify
from checkpointing.storage.locations import local_path
from dashboard.management.commands.submit import Command, in_current_directory
from tests.checkpointing.jobs.running_job_manager import PROGRAM, RunningJobManager, eventually, running_job_manager
from tests.checkpointing.spark.recordings import unpacked
from tests.checkpointing.spark.test_imported_while_running import saved
from tests.storage_servers import StorageServer

NO_OPTIONS: dict[str, Any] = {
    **dict.fromkeys(("name", "parallelism", "savepoint")),
    **dict.fromkeys(("arguments", "settings"), ()),
    "allow_non_restored_state": False,
}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "programs" / "words.py"
    file.parent.mkdir()
    file.write_text(PROGRAM)
    return file


async def submit(manager: RunningJobManager, *arguments: str, stderr: StringIO | None = None) -> str:
    out, more = StringIO(), {"stderr": stderr or StringIO()}
    await asyncio.to_thread(call_command, "submit", *arguments, "--jobmanager", manager.address, stdout=out, **more)
    return out.getvalue()


async def test_submit_waits_until_the_job_runs(manager: RunningJobManager, program: Path) -> None:
    text = await submit(
        manager, f"{program}:wordcount", "--name", "Words", "--arg", "input=/in", "--arg", "n=a=b",
        "--conf", "execution.checkpointing.interval=5s",
    )  # fmt: skip

    assert "Uploaded words.py." in text
    assert text.rstrip().endswith("RUNNING")
    spec = manager.launcher.specs[0]
    assert (spec.job_name, spec.program_args) == ("Words", ("--input", "/in", "--n", "a=b"))
    assert spec.configuration == {"execution.checkpointing.interval": "5s"}


async def test_relative_paths_of_a_script_are_below_the_current_directory(
    manager: RunningJobManager, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts have this default as under spark-submit. Functions do not, because they were written for Waymark."""
    monkeypatch.chdir(tmp_path)
    given = ("--directory", "programs"), ("--conf", "waymark.directory=/data"), ()
    for number, options in enumerate(given):
        await submit(manager, str(program), "--name", f"s{number}", *options)
    await submit(manager, f"{program}:wordcount", "--name", "f")
    found = [spec.configuration.get("waymark.directory") for spec in manager.launcher.specs]
    assert found == [str(tmp_path / "programs"), "/data", str(tmp_path), None]


@pytest.mark.parametrize(
    ("program", "settings", "job_manager", "is_set"),
    [
        ("a.py", (), "http://localhost:8081", True),
        ("jobs.zip:a", (), "http://127.0.0.1:8081", True),
        ("jobs.zip:a:main", (), "http://127.0.0.1:8081", False),
        ("a.py", (), "http://spark.internal:8081", False),
        ("a.py", ("spark.submit.deployMode=Cluster",), "http://127.0.0.1:8081", False),
        ("a.py", ("waymark.launcher=kubernetes",), "http://127.0.0.1:8081", False),
        ("a.py", ("waymark.directory=",), "http://127.0.0.1:8081", False),
    ],
)
def test_only_a_script_that_runs_on_this_machine_gets_the_current_directory(
    program: str, settings: Sequence[str], job_manager: str, is_set: bool
) -> None:
    submission = Submission.parse(
        program, name=None, arguments=(), settings=settings, parallelism=None, savepoint=None,
        allow_non_restored_state=False,
    )  # fmt: skip
    found = in_current_directory(submission, job_manager).settings.get("waymark.directory")
    assert found == (str(Path.cwd()) if is_set else submission.settings.get("waymark.directory"))


async def test_submit_reads_secrets_from_files(manager: RunningJobManager, program: Path, tmp_path: Path) -> None:
    password, key = tmp_path / "password", tmp_path / "key.pem"
    password.write_text("hunter2\n")
    key.write_text("hunter3\n")

    text = await submit(
        manager, f"{program}:wordcount", "--secret", f"DB_PASSWORD={password}", "--secret-file", f"KEY={key}",
        "--conf", "waymark.env.STAGE=production",
    )  # fmt: skip

    environment = manager.launcher.specs[0].environment
    assert environment == JobEnvironment({"STAGE": "production"}, {"DB_PASSWORD": "hunter2"}, {"KEY": "hunter3\n"})
    assert "hunter" not in text


async def test_arguments_after_two_dashes_belong_to_the_script(
    manager: RunningJobManager, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = program.with_name("my-script.py")
    script.write_text("import sys\nprint(sys.argv)\n")
    words = [
        "submit",
        str(script),
        "--jobmanager",
        manager.address,
        "--name",
        "Mine",
        "--",
        "in",
        "--n",
        "-5",
        "--",
        "",
    ]

    await asyncio.to_thread(Command().run_from_argv, ["manage.py", *words])

    assert capsys.readouterr().out.rstrip().endswith("RUNNING")
    spec = manager.launcher.specs[0]
    assert (spec.entry_class, spec.job_name) == ("my-script.py", "Mine")
    assert spec.program_args == ("in", "--n", "-5", "--", "")


async def test_options_of_spark_submit_are_settings(
    manager: RunningJobManager, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spark_submit = ("--master", "local[3]", "--driver-memory", "2g", "--py-files", "lib.zip, s3://a/b.zip")

    await submit(manager, f"{program}:wordcount", *spark_submit, "--conf", "spark.driver.memory=1g")

    assert manager.launcher.specs[0].configuration == {
        "spark.master": "local[3]",
        "spark.driver.memory": "1g",
        "spark.submit.pyFiles": f"{tmp_path}/lib.zip,s3://a/b.zip",
    }


@pytest.mark.parametrize("words", [["in", "-n", "5"], ["--verbose", "in"]])
def test_missing_two_dashes_are_explained(program: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "submit", str(program), "--conf", "spark.x=y", *words])

    assert ended.value.code == 2
    assert f"Those of the program come after --, as in: -- {' '.join(words)}" in capsys.readouterr().err


async def test_a_script_is_named_after_its_file(manager: RunningJobManager, program: Path) -> None:
    await submit(manager, str(program), "--arg", "input=/in")
    spec = manager.launcher.specs[0]
    assert (spec.entry_class, spec.job_name, spec.program_args) == ("words.py", "words", ("--input", "/in"))


async def test_submit_starts_from_a_checkpoint_location_of_spark(
    manager: RunningJobManager, program: Path, tmp_path: Path
) -> None:
    location = unpacked("distinct", tmp_path / "day=1").location
    text = await submit(manager, f"{program}:wordcount", "--from-checkpoint", str(location))

    assert "Copied the checkpoint location to savepoint " in text
    assert re.search(r"^The query continues after batch \d+, which began at 20\d\d-.* UTC\.$", text, re.MULTILINE)
    assert "Waymark cannot see whether the old job still runs. Make sure that it has stopped." in text
    restore = manager.launcher.specs[0].restore
    assert restore is not None
    checkpoint = verify(restore.directory, deep=True)
    assert checkpoint.imported_from == (str(location),)
    assert checkpoint.entry_class == "words.py:wordcount"
    assert list(checkpoint.batches) == [UNNAMED]


async def test_submit_starts_from_a_savepoint_of_a_watched_query(
    manager: RunningJobManager, program: Path, tmp_path: Path
) -> None:
    """The program of the savepoint is not known, so any program may start from it. Only one job continues the query."""
    recording = unpacked("count in rocksdb format 2", tmp_path / "watched")
    [root] = manager.settings.savepoint_roots.roots[:1]
    checkpoint = saved(recording, Path(root) / "watched")
    body = {"savepointPath": checkpoint.location, "entryClass": "words.py:wordcount"}
    answer = await manager.post("/savepoints/validate", body)
    assert (answer["valid"], answer["reason"]) == (True, None)

    await submit(manager, f"{program}:wordcount", "--from-savepoint", checkpoint.location)
    restore = manager.launcher.specs[0].restore
    assert restore is not None
    assert restore.directory == checkpoint.location
    with pytest.raises(CommandError, match="continues its query and is RUNNING"):
        await submit(manager, f"{program}:wordcount", "--from-savepoint", checkpoint.location)


async def test_a_checkpoint_location_for_each_query(manager: RunningJobManager, program: Path, tmp_path: Path) -> None:
    named = [f"{name}={unpacked('distinct', tmp_path / name).location}" for name in ("a", "b")]
    given = [word for each in named for word in ("--from-checkpoint", each)]
    text = await submit(manager, f"{program}:wordcount", *given)
    assert "Copied the checkpoint locations to savepoint " in text
    assert re.search(r"^a continues after batch \d+, .*\nb continues after batch \d+, ", text, re.MULTILINE)
    restore = manager.launcher.specs[0].restore
    assert restore is not None
    assert sorted(verify(restore.directory).batches) == ["a", "b"]


async def test_submit_prints_why_a_job_failed(manager: RunningJobManager, program: Path) -> None:
    manager.launcher.launch_error = "There is no Java."
    stderr = StringIO()

    with pytest.raises(CommandError, match=r"^The job is FAILED: There is no Java\.$"):
        await submit(manager, f"{program}:wordcount", stderr=stderr)
    assert stderr.getvalue() == ""


TRACEBACK = 'ValueError: bad thing\nTraceback (most recent call last):\n  File "words.py", line 8, in boom'


@pytest.mark.parametrize(
    ("entries", "stack"),
    [
        ([{"stacktrace": TRACEBACK}], TRACEBACK),
        ([{"stacktrace": "a line\n" * 90}], "\n".join(["a line"] * 40)),
        ([], ""),
    ],
)
async def test_a_program_that_fails_shows_where(entries: list[dict[str, str]], stack: str) -> None:
    moves = [{"status": "FAILING", "cause": "bad thing"}]
    text: list[str] = []

    class Client(JobManagerClient):
        def get(self, path: str) -> dict[str, Any]:
            if path.endswith("/exceptions"):
                return {"exceptionHistory": {"entries": entries}}
            return {"state": "FAILED", "status-history": moves, "attempts": [{"attempt": 1}]}

    client = Client("http://127.0.0.1:9")
    with pytest.raises(JobFailed, match=r"^The job is FAILED: bad thing$") as failed:
        follow(client, "0" * 32, text.append, lambda: 0, lambda seconds: None, 60)
    assert failed.value.stack == stack
    assert text == ["FAILED", f"See the log: manage.py job logs {'0' * 32}"]


async def test_submit_sends_the_requirements(manager: RunningJobManager, program: Path, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"nothing\.txt: No such file"):
        await submit(manager, f"{program}:wordcount", "--requirements", str(tmp_path / "nothing.txt"))
    file = tmp_path / "requirements.txt"
    file.write_text("pandas==2.2.3\n-r base.txt\n")
    with pytest.raises(CommandError, match=r"line 2: -r base\.txt"):
        await submit(manager, f"{program}:wordcount", "--requirements", str(file))
    assert manager.launcher.drivers == []

    file.write_text("pandas==2.2.3\n")
    options = Submission.parse(str(program), requirements=str(file), **NO_OPTIONS)
    assert options.settings == {"waymark.python.requirements": "pandas==2.2.3\n"}


async def test_submit_does_not_count_the_time_to_prepare_the_environment() -> None:
    wait = {"for": "environment", "step": "installing", "output": None, "failure": None, "since": 1_000}
    preparing = {"state": "CREATED", "launch-wait": wait}
    further = {"state": "CREATED", "launch-wait": {**wait, "output": "Collecting pandas"}}
    answers = [preparing, further, {"state": "CREATED", "launch-wait": None}, {"state": "RUNNING"}]
    result: list[str] = []
    now = iter(range(0, 1000, 25))

    class Client(JobManagerClient):
        def get(self, path: str) -> dict[str, Any]:
            return answers.pop(0)

    follow(Client("http://127.0.0.1:9"), "0" * 32, result.append, lambda: next(now), lambda s: None, 60)

    text = f"CREATED: The Python environment is being prepared (installing) since {time_text(1_000)}"
    assert result == [text, "CREATED", "RUNNING"]


def waiting_job(lacking: Lacking, **more: Any) -> dict[str, Any]:
    wait = {"for": lacking.value, "asked": None, "free": None, "limit": None, "position": 2, "length": 3, "since": 0}
    return {"state": "CREATED", "launch-wait": {**wait, **more}}


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (
            waiting_job(Lacking.MEMORY, asked=3 << 30, free=1 << 30, limit=8 << 30),
            "waits for 3.0 GiB of memory: 1.0 GiB of 8.0 GiB is free",
        ),
        (
            waiting_job(Lacking.MACHINE, asked=9 << 30, limit=8 << 30),
            "requests 9.0 GiB, and drivers of this machine may take 8.0 GiB in all",
        ),
        (
            waiting_job(Lacking.DRIVERS, free=0, limit=4),
            "waits until another job ends: 4 drivers are allowed on this machine",
        ),
        (
            waiting_job(Lacking.STARTS, free=0, limit=4),
            "waits until other drivers have started: at most 4 start at a time",
        ),
        (waiting_job(Lacking.TURN), "waits behind a job that waits for room"),
        (waiting_job(Lacking.RECOVERY), "waits until jobs of higher priority are recovered"),
    ],
)
async def test_submit_tells_why_the_job_waits(job: dict[str, Any], reason: str) -> None:
    text: list[str] = []
    now = iter(range(0, 1000, 25))

    class Client(JobManagerClient):
        def get(self, path: str) -> dict[str, Any]:
            return job

    with pytest.raises(JobFailed) as failed:
        follow(Client("http://127.0.0.1:9"), "0" * 32, text.append, lambda: next(now), lambda s: None, 60)

    assert text == [f"CREATED: {reason}; position 2 of 3"]
    assert str(failed.value).startswith(f"The job is CREATED after 60 s: it {reason}; position 2 of 3.\n")


async def test_submit_waits_for_a_job_manager_that_is_unreachable_for_a_while() -> None:
    away = [JobManagerUnreachable("gone"), RequestRefused(503, "an election is going on")]
    text: list[str] = []

    class Client(JobManagerClient):
        def get(self, path: str) -> dict[str, Any]:
            if away:
                raise away.pop()
            return {"state": "RUNNING"}

    follow(Client("http://127.0.0.1:9"), "0" * 32, text.append, lambda: 0, lambda seconds: None, 60)

    assert text == ["unknown: no job manager answers", "RUNNING"]


async def test_submit_waits_for_the_end_if_requested(manager: RunningJobManager, program: Path) -> None:
    submitted = asyncio.create_task(submit(manager, f"{program}:wordcount", "--wait", "--timeout", "20"))
    driver = await manager.driver(1)
    await manager.until(manager.launcher.specs[0].job_id, "RUNNING")
    assert not submitted.done()
    await driver.ends()
    assert (await submitted).splitlines()[-1] == "FINISHED"

    submitted = asyncio.create_task(submit(manager, f"{program}:wordcount", "--wait"))
    await eventually(lambda: len(manager.launcher.drivers) == 2)
    job_id = manager.launcher.specs[1].job_id
    await manager.until(job_id, "RUNNING")
    await manager.cancel(job_id)
    with pytest.raises(CommandError, match="The job is CANCELED"):
        await submitted


async def test_submit_prints_the_traceback_of_a_program_error_and_ends_the_job(
    manager: RunningJobManager, program: Path
) -> None:
    manager.launcher.becomes_running = False
    stderr = StringIO()
    restarts = ("--conf", "execution.checkpointing.interval=5s")
    submitted = asyncio.create_task(submit(manager, f"{program}:wordcount", *restarts, stderr=stderr))

    await (await manager.driver(1)).report_failure("bad thing", stacktrace=TRACEBACK, is_mistake=True)

    with pytest.raises(CommandError, match=r"^The job is FAILED: bad thing$"):
        await submitted
    assert stderr.getvalue().strip() == TRACEBACK
    assert len(manager.launcher.drivers) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("words.txt",), "SCRIPT.py, PROGRAM.py:FUNCTION"),
        (("missing.py:f",), "No such file"),
        (("{program}:nothing",), "no top-level function 'nothing'"),
        (("{program}:wordcount", "--arg", "x"), "--arg: 'x' is not allowed"),
        (("{program}:wordcount", "--from-savepoint", "/nowhere"), "savepointPath: "),
        (("{program}:wordcount", "--conf", "waymark.secret.A=hunter2"), "other users can read .*; write --secret NAME"),
        (("{program}:wordcount", "--secret", "A=/missing"), "/missing: No such file"),
        (("{program}:wordcount", "--secret", "hunter2"), "--secret: 'hunter2' is not allowed; NAME=FILE"),
        (
            ("{program}", "--from-checkpoint", "/nowhere"),
            "^--from-checkpoint: /nowhere does not exist, or is empty",
        ),
        (("{program}", "--from-checkpoint", "a=/x", "--from-checkpoint", "a=/y"), "query 'a' has two locations"),
        (("{program}", "--from-checkpoint", "/x", "--from-checkpoint", "/y"), "write NAME=LOCATION for each query"),
        (
            ("{program}", "--from-checkpoint", "a=/x", "--from-checkpoint", "/y"),
            "write NAME=LOCATION for each query",
        ),
        (("{program}", "--from-checkpoint", "a="), "'a=' is not allowed; LOCATION or NAME=LOCATION"),
        (("{program}", "--from-checkpoint", "/x", "--from-savepoint", "/y"), "only one of them is allowed"),
        (("{program}", "--from-checkpoint", "nope://x/y"), "nope"),
    ],
)
async def test_submit_explains_invalid_arguments(
    manager: RunningJobManager, program: Path, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        await submit(manager, *(argument.replace("{program}", str(program)) for argument in arguments))


def test_submit_reports_a_missing_job_manager(program: Path) -> None:
    with pytest.raises(CommandError, match=r"No job manager answers at http://127\.0\.0\.1:9"):
        call_command("submit", f"{program}:wordcount", "--jobmanager", "http://127.0.0.1:9")


def same_program(program: Path) -> Path:
    """Return the program under the name that `RunningJobManager.submit` uploads it with."""
    return program.rename(program.with_name("wordcount.py"))


async def test_submit_starts_from_a_savepoint_in_remote_storage(
    tmp_path: Path, program: Path, s3: StorageServer, admitted: Callable[[StorageServer], None]
) -> None:
    admitted(s3)
    target = f"{s3.root}/savepoints with a space"
    async with running_job_manager(tmp_path, WAYMARK_SAVEPOINT_ROOTS=target) as manager:
        job_id = await manager.submit_running()
        location = (await manager.savepoint(job_id, **{"target-directory": target}))["location"]

        await submit(manager, f"{same_program(program)}:wordcount", "--from-savepoint", location)

        restored = manager.launcher.specs[-1].restore
        assert restored is not None
        assert restored.directory == location


async def test_submit_starts_from_a_savepoint_at_a_relative_path(
    manager: RunningJobManager, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await manager.submit_running()
    location = local_path((await manager.savepoint(job_id))["location"])
    monkeypatch.chdir(Path(location).parent)

    await submit(manager, f"{same_program(program)}:wordcount", "--from-savepoint", Path(location).name)

    restored = manager.launcher.specs[-1].restore
    assert restored is not None
    assert restored.directory == location
