"""The client with a real HTTP server that sends recorded answers of Flink 2.3, and invalid ones."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from checkpointing.jobs.continued_queries import AlreadyContinued
from checkpointing.model.status import JobStatus
from monitoring.engine.answers import (
    Checkpoints,
    DriverLog,
    JobOverview,
    SavepointValidation,
)
from monitoring.engine.client import FlinkClient
from monitoring.engine.connection import Connection, bearer
from monitoring.engine.errors import Malformed, NotFound, NotReady, Refused, RequestNotSent, Unreachable
from monitoring.engine.fields import Fields
from monitoring.engine.operations import Done, Failed, Forgotten, InProgress
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason
from monitoring.reasons.refusals import RefusalReason

SAMPLES = Path(__file__).resolve().parents[2] / "flink_samples"
JOB, TRIGGER, VERTEX = "623162a208c756b82c3ea31768e25a9a", "0" * 29 + "fff", "f3972bd41bae29c99f67c3c4998870ba"


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.json").read_text()


def changed(name: str, **changes: object) -> str:
    return json.dumps({**json.loads(sample(name)), **changes})


@pytest.fixture
async def client(httpserver: HTTPServer) -> AsyncIterator[FlinkClient]:
    async with FlinkClient(
        Connection(httpserver.url_for("").rstrip("/"), bearer("s3cret")), read_limit_s=30, command_limit_s=30
    ) as client:
        yield client


def answers(httpserver: HTTPServer, path: str, body: str, status: int = 200, method: str = "GET") -> None:
    httpserver.expect_request(path, method=method).respond_with_data(body, status, content_type="application/json")


async def test_jobs_of_a_cluster_are_listed(httpserver, client):
    answers(httpserver, "/overview", sample("overview"))
    answers(httpserver, "/jobs/overview", sample("jobs_overview"))
    overview = await client.overview()
    assert (overview.version, overview.taskmanagers, overview.slots_total) == ("2.3.0", 1, 4)
    started = datetime(2026, 11, 21, 3, 14, 19, 821000, tzinfo=UTC)
    (job,) = await client.jobs_overview()
    assert job == JobOverview(JOB, "demo-job", "RUNNING", job.started_at, None, job.moved_at)
    assert job.moved_at is not None
    assert job.started_at.timestamp() == 1795233259.821
    assert job.started_at.microsecond == started.microsecond


async def test_a_job(httpserver, client):
    answers(httpserver, f"/jobs/{JOB}", sample("job"))
    job = await client.job(JOB)
    assert [(vertex.name, vertex.parallelism, vertex.status) for vertex in job.vertices] == [
        ("Source: gen", 2, "RUNNING"),
        ("count -> Sink: Writer", 2, "RUNNING"),
    ]
    source, count = job.vertices
    assert (source.inputs, count.inputs) == ((), (source.id,))


@pytest.mark.parametrize("plan", [None, "nonsense", {}, {"nodes": None}, {"nodes": [{"id": 7}]}])
async def test_a_job_whose_plan_cannot_be_read_has_operators_with_unknown_inputs(httpserver, client, plan):
    answers(httpserver, f"/jobs/{JOB}", json.dumps({**json.loads(sample("job")), "plan": plan}))
    job = await client.job(JOB)
    assert [vertex.inputs for vertex in job.vertices] == [None, None]
    assert all("inputs" not in vertex.as_row() for vertex in job.vertices)


async def test_the_checkpoint_history(httpserver, client):
    answers(httpserver, f"/jobs/{JOB}/checkpoints", sample("checkpoints"))
    checkpoints = await client.checkpoints(JOB)
    assert checkpoints.counts.as_row() == {"restored": 0, "total": 7, "in_progress": 0, "completed": 6, "failed": 1}
    assert [entry.id for entry in checkpoints.history] == [6, 5, 4]
    assert checkpoints.history[0].external_path.endswith("/chk-6")
    assert checkpoints.latest == ()
    assert checkpoints.summary["end_to_end_duration"]["p99"] == 563.0


def test_a_list_that_is_partly_known_is_read_as_any():
    answer = json.loads(sample("checkpoints_after_decline"))
    before = {entry.id: entry for entry in Checkpoints.parse(Fields(answer, "/checkpoints")).entries}
    newest, *older = (entry for entry in answer["history"] if entry["status"] == "COMPLETED")
    older[0]["discarded"] = not older[0]["discarded"]
    added = {**newest, "id": 5000, "trigger_timestamp": newest["trigger_timestamp"] + 5000, "state_size": 7}
    answer["history"].insert(0, added)
    answer["latest"]["completed"] = added
    again = Checkpoints.parse(Fields(answer, "/checkpoints"), before)
    assert again == Checkpoints.parse(Fields(answer, "/checkpoints"))
    assert again.history[0].totals.state_size == 7
    kept = [entry for entry in again.entries if entry is before.get(entry.id)]
    assert len(kept) == len(again.entries) - 2, "all but what is new and what was discarded"


@pytest.mark.parametrize(("expected", "amount"), [(0, 0), (7, 7), (-1, None), (None, None), (2**63 - 1, 2**63 - 1)])
def test_an_amount_below_zero_is_none(expected, amount):
    assert Fields({"size": expected}, "x").amount("size") == amount


@pytest.mark.parametrize("expected", [True, 1.5, "7", 2**63, -(2**63), 1e30])
def test_an_invalid_amount_is_reported_with_its_field(expected):
    with pytest.raises(Malformed, match="size is"):
        Fields({"size": expected}, "x").amount("size")


async def test_a_savepoint_restored_from(httpserver, client):
    answers(httpserver, f"/jobs/{JOB}/checkpoints", sample("checkpoints_restored_from_savepoint"))
    restored = (await client.checkpoints(JOB)).restored
    assert restored is not None
    assert (restored.id, restored.is_savepoint) == (161, True)
    assert restored.external_path == "file:/data/flink/sp/savepoint-623162-757da9291cb8"


async def test_a_declined_checkpoint_and_its_exception(httpserver, client):
    answers(httpserver, f"/jobs/{JOB}/checkpoints", sample("checkpoints_after_decline"))
    answers(httpserver, f"/jobs/{JOB}/exceptions", sample("exceptions_after_decline"))
    failed = [entry for entry in (await client.checkpoints(JOB)).history if entry.status == "FAILED"]
    assert failed[0].failure_message == "Checkpoint Coordinator is suspending."
    assert failed[0].failed_at is not None
    (exception,) = await client.exceptions(JOB)
    assert (exception.name, exception.task[:5]) == ("java.io.IOException", "count")


async def test_one_checkpoint_by_operator_and_subtask(httpserver, client):
    answers(httpserver, f"/jobs/{JOB}/checkpoints/details/123", sample("checkpoint_details"))
    answers(httpserver, f"/jobs/{JOB}/checkpoints/details/123/subtasks/{VERTEX}", sample("checkpoint_subtasks"))
    details = await client.checkpoint_details(JOB, 123)
    assert details.tasks[VERTEX].checkpointed_size == 19010
    operator = await client.checkpoint_subtasks(JOB, 123, VERTEX)
    first = operator.subtasks[0]
    assert (first.sync_duration, first.async_duration, first.start_delay, first.alignment_duration) == (0, 7, 35, 0)
    assert operator.totals.end_to_end_duration == 112


async def test_the_configuration(httpserver, client):
    answers(httpserver, f"/jobs/{JOB}/checkpoints/config", sample("checkpoints_config"))
    answers(httpserver, f"/jobs/{JOB}/config", sample("job_config"))
    config = await client.checkpoint_config(JOB)
    assert (config.interval, config.max_concurrent, config.retained_on_cancellation) == (2000, 1, False)
    job = await client.job_config(JOB)
    assert (job.launch, job.parallelism) == (None, 2)


async def test_no_periodic_checkpoints(httpserver, client):
    answers(httpserver, f"/jobs/{JOB}/checkpoints/config", changed("checkpoints_config", interval=2**63 - 1))
    config = await client.checkpoint_config(JOB)
    assert (config.interval, config.raw["interval"]) == (None, None)


async def test_uploaded_programs(httpserver, client):
    answers(httpserver, "/jars", sample("jars"))
    assert all(jar.id.endswith(".jar") for jar in await client.jars())


@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("sp_status_1", 200, InProgress()),
        ("sp_status_2", 200, Done("file:/data/flink/sp/savepoint-623162-580e83637462")),
        ("sp_status_404", 404, Forgotten()),
        ("sp_status_nojob", 200, Failed("Could not find Flink job (00000000000000000000000000000009)")),
    ],
)
async def test_the_states_of_a_savepoint_request(httpserver, client, name, status, expected):
    answers(httpserver, f"/jobs/{JOB}/savepoints/{TRIGGER}", sample(name), status)
    assert await client.savepoint_status(JOB, TRIGGER) == expected


async def test_a_stop_that_failed_after_its_savepoint_names_it(httpserver, client):
    trace = (
        "org.apache.flink.StopWithSavepointStoppingException: A savepoint has been created at: file:/sp/savepoint-1, "
        "but the corresponding job 1 failed during stopping.\n\tat x"
    )
    body = {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": {"class": "x.Y", "stack-trace": trace}}}
    answers(httpserver, f"/jobs/{JOB}/savepoints/{TRIGGER}", json.dumps(body))
    status = await client.savepoint_status(JOB, TRIGGER)
    assert isinstance(status, Failed)
    assert status.usable_location == "file:/sp/savepoint-1"


class Bodies:
    """A request handler that keeps the requests and answers with `body`."""

    def __init__(self, body: object, status: int = 202) -> None:
        self.sent: list[tuple[str, dict[str, object] | None]] = []
        self._response = json.dumps(body), status

    def __call__(self, request: Request) -> Response:
        content = request.get_data()
        self.sent.append((request.full_path.rstrip("?"), json.loads(content) if content else None))
        assert request.headers["Authorization"] == "Bearer s3cret"
        return Response(*self._response)


async def test_commands_send_the_requests_that_flink_reads(httpserver, client):
    seen = Bodies({"request-id": TRIGGER})
    for path, method in (("savepoints", "POST"), ("stop", "POST"), ("checkpoints", "POST"), ("", "PATCH")):
        httpserver.expect_request(f"/jobs/{JOB}/{path}".rstrip("/"), method=method).respond_with_handler(seen)
    assert await client.trigger_savepoint(JOB, TRIGGER, "file:/sp") == TRIGGER
    assert await client.stop_with_savepoint(JOB, TRIGGER, drain=True, target_directory="file:/sp") == TRIGGER
    assert await client.trigger_checkpoint(JOB, TRIGGER) == TRIGGER
    await client.cancel(JOB)
    assert seen.sent == [
        (f"/jobs/{JOB}/savepoints", {"triggerId": TRIGGER, "cancel-job": False, "target-directory": "file:/sp"}),
        (f"/jobs/{JOB}/stop", {"triggerId": TRIGGER, "drain": True, "targetDirectory": "file:/sp"}),
        (f"/jobs/{JOB}/checkpoints", {"triggerId": TRIGGER}),
        (f"/jobs/{JOB}?mode=cancel", None),
    ]


async def test_a_program_is_started_under_the_id_that_the_caller_chose(httpserver, client):
    seen = Bodies({"jobid": JOB}, 200)
    httpserver.expect_request("/jars/1_a b.jar/run", method="POST").respond_with_handler(seen)
    assert (
        await client.run_jar(
            "1_a b.jar",
            job_id=JOB,
            entry_class="a:b",
            program_args=["--x", "1"],
            parallelism=2,
            savepoint_path="file:/sp/1",
            configuration={"spark.x": "y"},
            job_name="counts",
        )
        == JOB
    )
    assert seen.sent[0][1] == {
        "jobId": JOB,
        "entryClass": "a:b",
        "programArgsList": ["--x", "1"],
        "parallelism": 2,
        "savepointPath": "file:/sp/1",
        "flinkConfiguration": {"spark.x": "y", "pipeline.name": "counts"},
    }


async def test_a_program_is_handed_over(httpserver, client):
    def take(request: Request) -> Response:
        upload = request.files["jarfile"]
        assert (upload.filename, upload.read()) == ("count.py", b"def f():\r\n  --x")
        return Response(json.dumps({"filename": "/data/flink-web-upload/1_count.py", "status": "success"}))

    httpserver.expect_request("/jars/upload", method="POST").respond_with_handler(take)
    assert await client.upload_jar("count.py", b"def f():\r\n  --x") == "1_count.py"


async def test_a_refusal_has_the_reason(httpserver, client):
    answers(httpserver, "/jars/a.jar/run", sample("jar_run_bad_savepoint"), 400, "POST")
    with pytest.raises(Refused) as refused:
        await client.run_jar("a.jar", job_id=JOB)
    assert refused.value.status == 400
    assert refused.value.reason == (
        "Could not execute application: Cannot find checkpoint or savepoint file/directory 'file:/data/flink/sp/none' "
        "on file system 'file'."
    )


async def test_a_savepoint_is_checked_where_the_engine_can(httpserver, client):
    body = {"valid": False, "reason": "incomplete", "checkpointId": 7, "jobName": "a", "entryClass": "a:b"}
    answers(
        httpserver, "/savepoints/validate", json.dumps({**body, "stateSize": 9, "completedTimestamp": -1}), 200, "POST"
    )
    assert await client.validate_savepoint("file:/sp/1", "a:b") == SavepointValidation(
        False, "incomplete", 7, "a", "a:b", 9, None
    )


async def test_the_validation_of_a_savepoint_lists_queries_that_write_rows_again(httpserver, client):
    found = {"checkpointId": 7, "jobName": "a", "entryClass": "a:b", "stateSize": 9, "completedTimestamp": -1}
    queries = [
        {"name": "late", "sink": "Sink: console", "after-restore": "written-again"},
        {"name": "orders", "sink": "Sink: FileSink[/out]", "after-restore": "goes-back"},
        {"name": "old", "sink": "Sink: memory", "after-restore": None},
    ]
    body = {"valid": True, "reason": None, **found, "queries": queries}
    answers(httpserver, "/savepoints/validate", json.dumps(body), 200, "POST")
    validation = await client.validate_savepoint("file:/sp/1")
    assert validation is not None
    assert validation.written_again == (("late", "console"),)


@pytest.mark.parametrize("status", [404, 405])
async def test_a_flink_cluster_cannot_check_a_savepoint(httpserver, client, status):
    answers(httpserver, "/savepoints/validate", '{"errors": ["Not found."]}', status, "POST")
    assert await client.validate_savepoint("file:/sp/1") is None


@pytest.mark.parametrize(
    ("status", "body", "error", "text"),
    [
        (404, sample("checkpoints_nojob_404"), NotFound, "Job 00000000000000000000000000000001 not found"),
        (409, sample("cancel_finished"), Refused, "terminal state (FINISHED)"),
        (503, '{"errors": ["leader election"]}', NotReady, "leader election"),
        (
            500,
            '{"errors": ["Internal server error.", "x.UnavailableDispatcherOperationException: wait"]}',
            NotReady,
            "wait",
        ),
        (500, '{"errors": ["Internal server error.", "<Exception on server side:\\na.B: bug"]}', Refused, "bug"),
        (302, "", Refused, "redirects"),
        (401, "<html>", Refused, "HTTP 401"),
        (200, "<html>", Malformed, "not JSON"),
        (200, '{"jobs": [{"jid": NaN}]}', Malformed, "not JSON"),
        (200, "[]", Malformed, "a list, not an object"),
        (200, "{}", Malformed, "has no field 'jobs'"),
        (200, '{"jobs": {}}', Malformed, "/jobs/overview.jobs is an object, not a list"),
        (200, '{"jobs": [7]}', Malformed, "jobs[0] is a number, not an object"),
        (200, '{"jobs": [{"jid": "../../etc"}]}', Malformed, "jobs[0].jid is not an identifier"),
        (200, "[" * 100_000, Malformed, "not JSON"),
    ],
)
async def test_each_kind_of_invalid_answer(httpserver, client, status, body, error, text):
    answers(httpserver, "/jobs/overview", body, status)
    with pytest.raises(error) as raised:
        await client.jobs_overview()
    assert text in str(raised.value)


async def test_a_refusal_of_the_job_manager_is_a_reason_and_no_text_of_an_engine(httpserver, client):
    refusal = AlreadyContinued("/data/words", JOB, "wordcount", JobStatus.RUNNING)
    body = {"errors": [f"x.RestHandlerException: savepointPath: {refusal}"], "refusal": refusal.as_json()}
    answers(httpserver, "/jobs/overview", json.dumps(body), 400)
    with pytest.raises(Refused) as raised:
        await client.jobs_overview()
    assert raised.value.reason == RefusalReason.CONTINUED(
        location="/data/words", job="wordcount", id=JOB, status="RUNNING"
    )
    assert raised.value.engine_text == ""


async def test_an_unknown_refusal_is_the_text_of_the_engine(httpserver, client):
    body = {"errors": ["No room."], "refusal": {"code": "imports.later", "args": {}}}
    answers(httpserver, "/jobs/overview", json.dumps(body), 400)
    with pytest.raises(Refused) as raised:
        await client.jobs_overview()
    assert (raised.value.reason, raised.value.engine_text) == ("No room.", "No room.")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"state": "DANCING"}, "not a job state"),
        ({"state": None}, ".state is null, not a text"),
        ({"start-time": "today"}, ".start-time is a text, not a whole number"),
        ({"start-time": True}, ".start-time is true or false, not a whole number"),
        ({"start-time": 10**30}, ".start-time is out of range"),
        ({"start-time": 2**62}, ".start-time is out of range"),
        ({"start-time": 1.5}, ".start-time is a number, not a whole number"),
        ({"name": 7}, ".name is a number, not a text"),
    ],
)
async def test_a_wrong_field_is_named(httpserver, client, change, text):
    job = {**json.loads(sample("jobs_overview"))["jobs"][0], **change}
    answers(httpserver, "/jobs/overview", json.dumps({"jobs": [job]}))
    with pytest.raises(Malformed) as raised:
        await client.jobs_overview()
    assert text in str(raised.value)


async def test_characters_that_databases_cannot_store_are_replaced(httpserver, client):
    job = {**json.loads(sample("jobs_overview"))["jobs"][0], "name": "a\x00b\ud800c"}
    answers(httpserver, "/jobs/overview", json.dumps({"jobs": [job]}))
    (read,) = await client.jobs_overview()
    assert read.name.startswith("a\ufffdb\ufffd")
    read.name.encode()


async def test_an_answer_that_drips_ends_at_the_time_limit(httpserver):
    done = threading.Event()

    def drip(request: Request) -> Response:
        def body():
            for _ in range(100):
                yield b" "
                if done.wait(0.1):
                    return

        return Response(body(), content_type="application/json")

    httpserver.expect_request("/overview").respond_with_handler(drip)
    async with FlinkClient(Connection(httpserver.url_for("").rstrip("/")), read_limit_s=0.4) as client:
        with pytest.raises(Unreachable, match=r"did not answer /overview within 0\.4 s"):
            await client.overview()
    done.set()


async def test_an_answer_without_end_is_cut_off(httpserver):
    answers(httpserver, "/overview", " " * 5000)
    async with FlinkClient(Connection(httpserver.url_for("").rstrip("/")), body_limit=1000) as client:
        with pytest.raises(Malformed, match="larger than 1000 bytes"):
            await client.overview()


async def test_a_closed_port_is_unreachable():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with FlinkClient(Connection(f"http://127.0.0.1:{port}")) as client:
        with pytest.raises(Unreachable, match="cannot be reached"):
            await client.overview()


async def test_an_invalid_address():
    async with FlinkClient(Connection("http://[nonsense")) as client:
        with pytest.raises(RequestNotSent, match="This is not a valid address"):
            await client.overview()


@pytest.mark.parametrize(
    ("code", "elsewhere"),
    [
        ("yarn-driver", EngineReason.LOGS_YARN_DRIVER()),
        ("of-a-newer-version", "In the attic."),
        (None, "In the attic."),
    ],
)
def test_the_place_of_the_rest_of_a_log_has_a_code_or_the_job_managers_text(
    code: str | None, elsewhere: Reason | str
) -> None:
    log = {"name": "driver-1.log", "attempt": 1, "size": 9, "start-time": 1, "mtime": 2, "elsewhere": "In the attic."}
    assert DriverLog.parse(Fields({**log, "elsewhere-code": code}, "log")).elsewhere == elsewhere


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, EngineReason.FIELD_MISSING(where="x", name="size")),
        ({"size": None}, EngineReason.FIELD_NULL(where="x.size", expected=EngineReason.WHOLE_NUMBER())),
        (
            {"size": "9"},
            EngineReason.FIELD_TYPE(where="x.size", found=EngineReason.TEXT(), expected=EngineReason.WHOLE_NUMBER()),
        ),
        ({"size": 2**70}, EngineReason.OUT_OF_RANGE(where="x.size")),
    ],
)
def test_a_wrong_field_is_named_with_its_value(value: dict[str, object], reason: Reason) -> None:
    with pytest.raises(Malformed) as wrong:
        Fields(value, "x").whole("size")
    assert wrong.value.reason == reason
