"""Jobs that are started by a launch command, with real processes."""

import asyncio
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from monitoring.engine.errors import Malformed, Refused
from monitoring.reasons.launch import LaunchReason
from monitoring.recovery import launch_command
from monitoring.recovery.cycle import advance
from monitoring.recovery.launch_command import BadCommand, TimedOut, check, fixes_job_id, run
from monitoring.recovery.launch_values import LaunchValues, NotRun
from monitoring.recovery.launching import BadLaunch, check_launch
from monitoring.recovery.manual import restart_from
from tests.waiting import eventually

ID = "0123456789abcdef0123456789abcdef"


def has_ended(process_id):
    """Return whether the process has ended, even if it has not been reaped."""
    try:
        return ") Z " in Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def program(tmp_path):
    """Return a function that writes a script and returns its path, as in `program("echo hello")`."""

    def write(script):
        path = tmp_path / "start.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def started_by(job, job_manager, tmp_path):
    """Return a function that sets the job's launch command, as in `started_by("print('done')")`.

    The command starts the job with an ID that the engine chooses, and then runs the given code.
    """

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


@pytest.fixture
def limit_begins_when(monkeypatch):
    """Return a function that delays the time limit of a command until `has_started()` is true or the command has ended.

    Without it, a slow machine may reach the limit before the command has done what the test is about.
    """

    def let_it_begin(has_started):
        outcome = launch_command._outcome

        async def from_its_begin(process, program, limit_s):
            await asyncio.to_thread(
                eventually, "it has started", lambda: has_started() or process.returncode is not None
            )
            return await outcome(process, program, limit_s)

        monkeypatch.setattr(launch_command, "_outcome", from_its_begin)

    return let_it_begin


HOSTILE = "flights; rm -rf /"


def start(command, limit_s=10.0, job_name=HOSTILE):
    values = LaunchValues("file:/sp/1", ID, job_name, "https://flink.example:8443/east", 4)
    return asyncio.run(run(command, values, limit_s))


def test_a_placeholder_value_is_one_argument_for_any_content(program, tmp_path):
    path = program(f'for each in "$@"; do echo "[$each]"; done > {tmp_path}/said')
    assert start([path, "-s", "{savepoint}", "--id={job_id}", "--name", "{job_name}", "{{}}"]) == ID
    text = (tmp_path / "said").read_text().splitlines()
    assert text == ["[-s]", "[file:/sp/1]", f"[--id={ID}]", "[--name]", "[flights; rm -rf /]", "[{}]"]


def test_the_cluster_and_the_parallelism_are_filled_in_and_in_the_environment(program, tmp_path):
    path = program(f'echo "$@" > {tmp_path}/said; env | grep ^WAYMARK_ | sort > {tmp_path}/env')
    start([path, "-m", "{rest_address}", "-p", "{parallelism}", "{rest_url}", "{savepoint}", "{job_id}"])
    text = (tmp_path / "said").read_text().strip()
    assert text == f"-m flink.example:8443 -p 4 https://flink.example:8443/east file:/sp/1 {ID}"
    assert (tmp_path / "env").read_text().splitlines() == [
        f"WAYMARK_JOB_ID={ID}",
        f"WAYMARK_JOB_NAME={HOSTILE}",
        "WAYMARK_PARALLELISM=4",
        "WAYMARK_REST_ADDRESS=flink.example:8443",
        "WAYMARK_REST_URL=https://flink.example:8443/east",
        "WAYMARK_SAVEPOINT=file:/sp/1",
    ]


@pytest.mark.parametrize(
    "command",
    [
        ["/bin/sh", "-c", "echo {job_name} {savepoint} {job_id}"],
        ["/bin/bash", "-lc", "echo '{job_name}' {savepoint} {job_id}"],
        ["/usr/bin/env", "bash", "-c", "echo {job_name} {savepoint} {job_id}"],
        ["/usr/bin/python3.11", "-c", "print('{job_name}', '{savepoint}', '{job_id}')"],
        ["/usr/bin/ssh", "gateway", "flink", "run", "{job_name}", "{savepoint}", "{job_id}"],
        ["/usr/bin/kubectl", "exec", "client", "--", "sh", "-c", "flink run -s {savepoint} {job_name} {job_id}"],
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("name", [HOSTILE, "a b", "x'y", "$(id)", "*", "a\nb"])
def test_a_value_that_a_shell_would_read_as_code_is_refused(command, name):
    with pytest.raises(NotRun, match=r"\{job_name\} is .* could read as code; .* WAYMARK_JOB_NAME instead") as refused:
        start(command, job_name=name)
    assert refused.value.reason.code is LaunchReason.READ_AS_CODE


def test_a_shell_reads_such_a_value_from_its_environment(tmp_path):
    script = f'printf %s "$WAYMARK_JOB_NAME" > {tmp_path}/said\n'
    (tmp_path / "start.sh").write_text(script)
    assert start(["/bin/sh", str(tmp_path / "start.sh"), "{savepoint}", "{job_id}", "{job_name}"]) == ID
    assert (tmp_path / "said").read_text() == HOSTILE
    command = ["/bin/sh", "-c", f'touch "{tmp_path}/$WAYMARK_PARALLELISM"', "$WAYMARK_SAVEPOINT", "$WAYMARK_JOB_ID"]
    assert start(command) == ID
    assert (tmp_path / "4").exists()


def test_a_name_without_shell_separators_is_inserted_also_for_a_shell(tmp_path):
    command = ["/bin/sh", "-c", f"touch {tmp_path}/{{job_name}}", "{savepoint}", "{job_id}"]
    assert start(command, job_name="flights-2.1_é") == ID
    assert (tmp_path / "flights-2.1_é").exists()


def test_a_job_name_is_never_taken_for_an_option_of_the_command(program):
    with pytest.raises(NotRun, match="would be read as an option"):
        start([program("true"), "{savepoint}", "{job_id}", "{job_name}"], job_name="-Dpipeline.jars=http://evil/x.jar")
    assert start([program("true"), "{savepoint}", "{job_id}", "--name={job_name}"], job_name="-x") == ID


def test_the_job_id_is_read_from_the_output_of_the_command(program):
    other = "f" * 32
    path = program(f"echo 'Job has been submitted with JobID {other}'")
    assert start([path, "{savepoint}"]) == other


def test_a_command_that_prints_no_job_id_fails(program):
    with pytest.raises(Malformed, match="printed no"):
        start([program("echo done"), "{savepoint}"])


def test_a_failed_command_reports_its_output(program):
    with pytest.raises(Refused, match="failed with exit code 3: no such cluster") as refused:
        start([program("echo no such cluster >&2; exit 3"), "{savepoint}", "{job_id}"])
    assert refused.value.engine_text == "no such cluster"
    with pytest.raises(Refused) as silent:
        start([program("exit 3"), "{savepoint}", "{job_id}"])
    assert silent.value.engine_text == ""


def test_a_command_that_never_ends_is_killed_with_its_children(program, tmp_path, limit_begins_when):
    written = tmp_path / "child"
    path = program(f"sleep 300 & echo $! > {written}; wait")
    limit_begins_when(lambda: written.exists() and written.read_text())
    began = time.monotonic()
    with pytest.raises(TimedOut, match=r"did not end within 0\.5 s and was killed"):
        start([path, "{savepoint}", "{job_id}"], limit_s=0.5)
    assert time.monotonic() - began < 200
    child = int(written.read_text())
    eventually("the child is dead", lambda: has_ended(child))


def test_the_worker_keeps_its_secrets(program, tmp_path, monkeypatch):
    monkeypatch.setenv("WAYMARK_SECRET_KEY", "hunter2")
    start([program(f"env > {tmp_path}/env"), "{savepoint}", "{job_id}"])
    assert "hunter2" not in (tmp_path / "env").read_text()


async def test_without_a_savepoint_the_command_is_not_run(program, tmp_path):
    """The command would start the job without state."""
    command = [program(f"touch {tmp_path}/ran"), "{savepoint}", "{job_id}"]
    with pytest.raises(NotRun, match="only from a savepoint, and there is none"):
        await run(command, LaunchValues("", ID, "flights", "http://flink:8081"), 10)
    assert not (tmp_path / "ran").exists()


def test_a_program_that_is_not_there_is_refused():
    with pytest.raises(NotRun, match="does not exist on this worker or is not executable"):
        start(["/nowhere/flink", "{savepoint}", "{job_id}"])


def unknown(name):
    known = ["{savepoint}", "{job_id}", "{job_name}", "{rest_url}", "{rest_address}", "{parallelism}"]
    return LaunchReason.UNKNOWN_PLACE(name=name, known=known)


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        (None, LaunchReason.ARGUMENTS_NEEDED()),
        ([], LaunchReason.ARGUMENTS_NEEDED()),
        ("flink run", LaunchReason.ARGUMENTS_NEEDED()),
        (["/bin/flink", 7], LaunchReason.ARGUMENTS_NEEDED()),
        (["flink", "{savepoint}"], LaunchReason.ABSOLUTE_PATH_NEEDED()),
        (["/bin/flink", "run"], LaunchReason.SAVEPOINT_NEEDED(place="{savepoint}")),
        (["/bin/sh", "-c", 'flink run -s "$WAYMARK_JOB_ID"'], LaunchReason.SAVEPOINT_NEEDED(place="{savepoint}")),
        (["/bin/flink", "{savepoint}", "{cluster}"], unknown("{cluster}")),
        (["/bin/flink", "{savepoint}", "{}"], unknown("{}")),
        (["/bin/flink", "{savepoint}", "{job_id.__class__}"], unknown("{job_id.__class__}")),
        (["/bin/flink", "{savepoint}", "{job_id:{x}}"], unknown("{job_id:{x}}")),
        (["/bin/flink", "{savepoint!r}"], unknown("{savepoint!r}")),
        (
            ["/bin/flink", "{savepoint}", "{job_id"],
            LaunchReason.BRACES_DO_NOT_MATCH(error="expected '}' before end of string"),
        ),
        (["/bin/flink", "{savepoint}", "; rm -rf /"], LaunchReason.FOR_A_SHELL(found="';'")),
        (["/bin/flink", "{savepoint}", "a && b"], LaunchReason.FOR_A_SHELL(found="'&'")),
        (["/bin/flink", "{savepoint}", "$(id)"], LaunchReason.FOR_A_SHELL(found="'$('")),
        (["/bin/flink", "{savepoint}", "`id`"], LaunchReason.FOR_A_SHELL(found="'`'")),
        (["/bin/flink", "{savepoint}", "> /etc/passwd"], LaunchReason.FOR_A_SHELL(found="'>'")),
        (["/bin/flink", "{savepoint}", "x" * 5000], LaunchReason.ARGUMENT_TOO_LONG(most=4096)),
    ],
)
def test_an_invalid_command_is_refused(command, allowed):
    with pytest.raises(BadCommand) as problem:
        check(command)
    assert problem.value.allowed == allowed
    with pytest.raises(BadLaunch, match=r"^launch\.command is") as refused:
        check_launch({"kind": "command", "command": command})
    assert refused.value.allowed == allowed


def test_errors_show_placeholders_and_braces_literally():
    assert str(unknown("{cluster}")).startswith("{cluster} does not exist; use one of {savepoint}, {job_id}, ")
    assert str(LaunchReason.BRACES_DO_NOT_MATCH(error="x")) == "its braces do not match (x); write {{ and }} for braces"


def test_the_flink_command_is_accepted():
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
    job, savepoint, job_manager, settle, started_by, now, monkeypatch, limit_begins_when, then
):
    monkeypatch.setattr(launch_command, "SHORTEST_LIMIT_S", 3)
    limit_begins_when(lambda: job_manager.ran)
    started_by(then)
    job.launch["limit_s"] = 3
    job.save()
    attempt = settle(restart_from(job, savepoint, "ada", now), now)
    assert (attempt.state, attempt.error) == ("succeeded", "")
    assert job_manager.jobs[attempt.engine_job_id].savepoint_path == "file:/sp/1"
    assert len(job_manager.ran) == 1


def test_a_missing_state_is_detected_even_without_a_job_id(job, savepoint, job_manager, started_by, go_on, now):
    """Otherwise each restart would try the same snapshot again."""
    started_by("print('done')")
    job_manager.can_validate = False
    job_manager.starts_as = ["FAILED", "RUNNING"]
    job_manager.exception = "java.io.FileNotFoundException: Cannot find checkpoint or savepoint 'file:/chk/7'"
    attempt = go_on(job, now)
    assert attempt.state == "succeeded", attempt.error
    assert [each["path"] for each in attempt.rejected] == ["file:/chk/7"]
    assert [each["savepointPath"] for each in job_manager.ran] == ["file:/chk/7", "file:/sp/1"]


def test_the_parallelism_of_the_launch_record_is_filled_in(job, savepoint, program, tmp_path, now):
    command = [program(f'echo "$@" > {tmp_path}/said'), "{savepoint}", "{job_id}", "-p{parallelism}"]
    job.launch = {"kind": "command", "command": command, "parallelism": 3}
    job.save()
    attempt = restart_from(job, savepoint, "ada", now)
    advance(now)
    attempt.refresh_from_db()
    assert attempt.launched_at is not None
    assert (tmp_path / "said").read_text().split() == ["file:/sp/1", attempt.engine_job_id, "-p3"]


def test_a_missing_job_is_reported_with_the_output_of_the_command(job, savepoint, job_manager, program, settle, now):
    job.launch = {"kind": "command", "command": [program("echo all is well"), "{savepoint}"]}
    job.save()
    attempt = settle(restart_from(job, savepoint, "ada", now), now)
    assert attempt.state == "failed"
    assert attempt.error == (
        f"The launch command was run once, but the engine does not know {attempt.engine_job_id}. "
        'The command succeeded but printed no "JobID …": all is well'
    )


@pytest.mark.parametrize(
    ("values", "field", "allowed"),
    [
        ({"limit_s": 4}, "limit_s", LaunchReason.SECONDS_NEEDED(shortest=5, longest=1800)),
        ({"limit_s": 1801}, "limit_s", LaunchReason.SECONDS_NEEDED(shortest=5, longest=1800)),
        ({"limit_s": "60"}, "limit_s", LaunchReason.SECONDS_NEEDED(shortest=5, longest=1800)),
        ({"parallelism": 2}, "parallelism", LaunchReason.COUNT_IS_NOT_USED(place="{parallelism}")),
        (
            {"command": ["/bin/x", "{savepoint}", "-p", "{parallelism}"]},
            "parallelism",
            LaunchReason.COUNT_IS_USED(place="{parallelism}"),
        ),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(values, field, allowed):
    with pytest.raises(BadLaunch) as problem:
        check_launch({"kind": "command", "command": ["/bin/x", "{savepoint}"]} | values)
    assert (problem.value.field, problem.value.allowed) == (field, allowed)


def test_a_command_killed_at_its_limit_is_reported_with_the_limit(
    job, savepoint, job_manager, program, settle, now, monkeypatch
):
    monkeypatch.setattr(launch_command, "SHORTEST_LIMIT_S", 1)
    path = program("sleep 300")
    job.launch = {"kind": "command", "command": [path, "{savepoint}"], "limit_s": 1}
    job.save()
    attempt = settle(restart_from(job, savepoint, "ada", now), now)
    assert attempt.error == (
        f"The launch command was run once, but the engine does not know {attempt.engine_job_id}. "
        f"{path} did not end within 1 s and was killed."
    )


def test_the_count_of_launches_is_of_the_candidate_that_was_tried_last(
    rows, job, job_manager, program, go_on, now, monkeypatch, tmp_path, limit_begins_when
):
    """The newer snapshot is refused, and the command for the older one never ends."""
    monkeypatch.setattr(launch_command, "SHORTEST_LIMIT_S", 1)
    rows.checkpoint(job.current_run, 9, external_path="file:/chk/9", triggered_at=rows.ago(10))
    job_manager.can_validate = False
    waits = tmp_path / "waits"
    path = program(f'case "$1" in *9) echo "Cannot find checkpoint"; exit 1;; *) touch {waits}; sleep 300;; esac')
    limit_begins_when(waits.exists)
    job.launch = {"kind": "command", "command": [path, "{savepoint}"], "limit_s": 1}
    job.save()
    attempt = go_on(job, now)
    assert [each["path"] for each in attempt.rejected] == ["file:/chk/9"]
    assert attempt.error.startswith("The launch command was run once, but the engine does not know")


def test_a_command_that_cannot_be_run_rejects_no_state(rows, job, job_manager, go_on, now):
    job_manager.can_validate = False
    job.launch = {"kind": "command", "command": ["/nowhere/flink", "{savepoint}"]}
    job.save()
    attempt = go_on(job, now)
    assert attempt.rejected == []
    assert attempt.error == (
        "The launch command was not run: /nowhere/flink does not exist on this worker or is not executable."
    )


def test_the_time_of_a_command_does_not_count_towards_the_time_of_the_restart(
    job, savepoint, job_manager, program, settle, now, monkeypatch
):
    monkeypatch.setattr(launch_command, "SHORTEST_LIMIT_S", 1)
    job.launch = {"kind": "command", "command": [program("sleep 2"), "{savepoint}", "{job_id}"], "limit_s": 9}
    job.save()
    attempt = restart_from(job, savepoint, "ada", now)
    deadline_at = attempt.deadline_at
    advance(now)
    attempt.refresh_from_db()
    assert attempt.launched_at is not None
    assert attempt.deadline_at >= deadline_at + timedelta(seconds=1)
