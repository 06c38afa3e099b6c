"""A job started by a command: real processes."""

import asyncio
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from monitoring.engine.errors import Malformed, Refused, Unreachable
from monitoring.recovery.launch_command import BadCommand, check, fixes_job_id, run
from monitoring.recovery.launching import BadLaunch, check_launch
from monitoring.recovery.manual import restart_from
from tests.waiting import eventually

ID = "0123456789abcdef0123456789abcdef"


def zombie(process_id):
    """Dead, and nobody has asked for its exit code yet."""
    return ") Z " in Path(f"/proc/{process_id}/stat").read_text()


@pytest.fixture
def program(tmp_path):
    """`program("echo hello")`: the path of a script that does so."""

    def write(script):
        path = tmp_path / "start.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def started_by(job, job_manager, tmp_path):
    """`started_by("print('done')")`: the job is started by a command that lets the engine choose the id, and then does
    that."""

    def write(then):
        body = '{"savepointPath": sys.argv[1], "flinkConfiguration": {"pipeline.name": "flights"}}'
        url = f"{job_manager.url}/jars/program.py/run"
        lines = (
            f"#!{sys.executable}",
            "import json, sys, time, urllib.request as web",
            f"web.urlopen(web.Request({url!r}, json.dumps({body}).encode(), method='POST')).read()",
            then,
        )
        path = tmp_path / "start.py"
        path.write_text("\n".join(lines))
        path.chmod(0o755)
        job.launch = {"kind": "command", "command": [str(path), "{savepoint}"]}
        job.save()

    return write


def start(command, limit_s=10.0):
    return asyncio.run(run(command, ID, "flights; rm -rf /", "file:/sp/1", limit_s))


def test_what_is_filled_in_is_one_argument_whatever_it_holds(program, tmp_path):
    path = program(f'for each in "$@"; do echo "[$each]"; done > {tmp_path}/said')
    assert start([path, "-s", "{savepoint}", "--id={job_id}", "--name", "{job_name}", "{{}}"]) == ID
    said = (tmp_path / "said").read_text().splitlines()
    assert said == ["[-s]", "[file:/sp/1]", f"[--id={ID}]", "[--name]", "[flights; rm -rf /]", "[{}]"]


def test_an_id_that_was_not_given_is_read_from_what_the_command_prints(program):
    other = "f" * 32
    path = program(f"echo 'Job has been submitted with JobID {other}'")
    assert start([path, "{savepoint}"]) == other


def test_a_command_that_says_no_id_is_no_success(program):
    with pytest.raises(Malformed, match="printed no"):
        start([program("echo done"), "{savepoint}"])


def test_a_command_that_ends_badly_says_why(program):
    with pytest.raises(Refused, match="ended with 3: no such cluster"):
        start([program("echo no such cluster >&2; exit 3"), "{savepoint}", "{job_id}"])


def test_one_that_never_ends_is_killed_with_its_children(program, tmp_path):
    path = program(f"sleep 300 & echo $! > {tmp_path}/child; wait")
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"did not end within 0\.5 s and was killed"):
        start([path, "{savepoint}", "{job_id}"], limit_s=0.5)
    assert time.monotonic() - began < 10
    child = int((tmp_path / "child").read_text())
    eventually("the child is dead", lambda: not Path(f"/proc/{child}").exists() or zombie(child))


def test_the_worker_keeps_its_secrets(program, tmp_path, monkeypatch):
    monkeypatch.setenv("WAYMARK_SECRET_KEY", "hunter2")
    start([program(f"env > {tmp_path}/env"), "{savepoint}", "{job_id}"])
    assert "hunter2" not in (tmp_path / "env").read_text()


def test_a_program_that_is_not_there_is_refused():
    with pytest.raises(Refused, match="no program that this worker may run"):
        start(["/nowhere/flink", "{savepoint}", "{job_id}"])


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (None, "a list of arguments is needed"),
        ([], "a list of arguments is needed"),
        ("flink run", "a list of arguments is needed"),
        (["/bin/flink", 7], "a list of arguments is needed"),
        (["flink", "{savepoint}"], "absolute path"),
        (["/bin/flink", "run"], "{savepoint} is needed"),
        (["/bin/flink", "{savepoint}", "{cluster}"], "there is no {cluster}; there are {savepoint}, {job_id}"),
        (["/bin/flink", "{savepoint}", "{}"], "there is no {}"),
        (["/bin/flink", "{savepoint}", "{job_id.__class__}"], "there is no {job_id.__class__}"),
        (["/bin/flink", "{savepoint}", "{job_id:{x}}"], "there is no {job_id:{x}}"),
        (["/bin/flink", "{savepoint!r}"], "there is no {savepoint!r}"),
        (["/bin/flink", "{savepoint}", "{job_id"], "braces do not match"),
        (["/bin/flink", "{savepoint}", "; rm -rf /"], "means something to a shell"),
        (["/bin/flink", "{savepoint}", "a && b"], "means something to a shell"),
        (["/bin/flink", "{savepoint}", "$(id)"], "means something to a shell"),
        (["/bin/flink", "{savepoint}", "`id`"], "means something to a shell"),
        (["/bin/flink", "{savepoint}", "> /etc/passwd"], "means something to a shell"),
        (["/bin/flink", "{savepoint}", "x" * 5000], "at most 4096"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(command, told):
    with pytest.raises(BadCommand) as problem:
        check(command)
    assert told in problem.value.allowed
    with pytest.raises(BadLaunch, match=r"^launch\.command is"):
        check_launch({"kind": "command", "command": command})


def test_flinks_own_command_is_fine():
    command = [
        "/opt/flink/bin/flink",
        "run",
        "-d",
        "-s",
        "{savepoint}",
        "-D$internal.pipeline.job-id={job_id}",
        "a.jar",
    ]
    assert check(command) == command
    assert fixes_job_id(command)
    assert not fixes_job_id(["/opt/flink/bin/flink", "run", "-s", "{savepoint}", "a.jar"])


@pytest.mark.parametrize("then", ["print('done')", "time.sleep(300)"], ids=["says no id", "never ends"])
def test_a_job_that_it_started_without_saying_so_is_found(
    job, savepoint, job_manager, settle, started_by, now, monkeypatch, then
):
    monkeypatch.setattr("monitoring.recovery.launch_command.run", partial(run, limit_s=3.0))
    started_by(then)
    attempt = settle(restart_from(job, savepoint, "ada", now), now)
    assert (attempt.state, attempt.error) == ("succeeded", "")
    assert job_manager.jobs[attempt.engine_job_id].savepoint_path == "file:/sp/1"
    assert len(job_manager.ran) == 1


def test_a_state_that_is_gone_is_found_out_though_it_says_no_id(job, savepoint, job_manager, started_by, go_on, now):
    """Else each restart would try the same state again."""
    started_by("print('done')")
    job_manager.can_validate = False
    job_manager.starts_as = ["FAILED", "RUNNING"]
    job_manager.exception = "java.io.FileNotFoundException: Cannot find checkpoint or savepoint 'file:/chk/7'"
    attempt = go_on(job, now)
    assert attempt.state == "succeeded", attempt.error
    assert [each["path"] for each in attempt.rejected] == ["file:/chk/7"]
    assert [each["savepointPath"] for each in job_manager.ran] == ["file:/chk/7", "file:/sp/1"]


def test_when_no_job_comes_it_is_told_what_the_command_said(job, savepoint, job_manager, program, settle, now):
    job.launch = {"kind": "command", "command": [program("echo all is well"), "{savepoint}"]}
    job.save()
    attempt = settle(restart_from(job, savepoint, "ada", now), now)
    assert attempt.state == "failed"
    assert attempt.error.endswith('does not know it. The command ended well and printed no "JobID …": all is well')
