"""Every answer has Flink's keys. Waymark's additional keys have other names."""

from __future__ import annotations

from typing import Any

import pytest

from checkpointing.model.messages import Heartbeat, QueryProgress, Vertex
from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.fake_driver import COUNT, SINK, SOURCE
from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually

# The keys of Flink 2.3's answers (a single-job cluster's recorded ones).
OVERVIEW = {"taskmanagers", "slots-total", "slots-available", "jobs-running", "jobs-finished", "jobs-cancelled",
            "jobs-failed", "flink-version", "flink-commit"}  # fmt: skip
CONFIG = {"refresh-interval", "timezone-name", "timezone-offset", "flink-version", "flink-revision", "features"}
JOB_OVERVIEW = {"jid", "name", "jobType", "schedulerType", "start-time", "end-time", "duration", "state",
                "last-modification", "tasks", "pending-operators"}  # fmt: skip
JOB_TASKS = {"running", "canceling", "canceled", "total", "created", "scheduled", "deploying", "reconciling",
             "finished", "initializing", "failed"}  # fmt: skip
JOB = {"jid", "name", "isStoppable", "state", "job-type", "schedulerType", "start-time", "end-time", "duration",
       "maxParallelism", "now", "timestamps", "vertices", "status-counts", "plan", "pending-operators"}  # fmt: skip
VERTEX = {"id", "slotSharingGroupId", "name", "maxParallelism", "parallelism", "status", "start-time", "end-time",
          "duration", "tasks", "metrics"}  # fmt: skip
METRICS = {"read-bytes", "read-bytes-complete", "write-bytes", "write-bytes-complete", "read-records",
           "read-records-complete", "write-records", "write-records-complete", "accumulated-backpressured-time",
           "accumulated-idle-time", "accumulated-busy-time"}  # fmt: skip
EXECUTION_STATES = {"DEPLOYING", "INITIALIZING", "CANCELED", "CREATED", "FINISHED", "RUNNING", "SCHEDULED",
                    "CANCELING", "FAILED", "RECONCILING"}  # fmt: skip
CHECKPOINT_CONFIG = {"mode", "interval", "timeout", "min_pause", "max_concurrent", "externalization", "state_backend",
                     "checkpoint_storage", "unaligned_checkpoints", "tolerable_failed_checkpoints",
                     "aligned_checkpoint_timeout", "checkpoints_after_tasks_finish", "state_changelog_enabled",
                     "changelog_periodic_materialization_interval", "changelog_storage"}  # fmt: skip
CHECKPOINT = {"className", "id", "status", "is_savepoint", "savepointFormat", "trigger_timestamp",
              "latest_ack_timestamp", "checkpointed_size", "state_size", "end_to_end_duration", "alignment_buffered",
              "processed_data", "persisted_data", "num_subtasks", "num_acknowledged_subtasks", "checkpoint_type",
              "tasks", "external_path", "discarded"}  # fmt: skip


async def test_the_job_manager_describes_itself(manager: RunningJobManager) -> None:
    await manager.submit_running()

    overview, config = await manager.get("/overview"), await manager.get("/config")

    assert set(overview) == OVERVIEW
    assert (overview["taskmanagers"], overview["slots-total"], overview["jobs-running"]) == (1, 4, 1)
    assert set(config) == CONFIG
    assert config["refresh-interval"] == 3000, "as in Flink"


async def test_a_running_job_in_the_lists(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running(jobName="Words")

    assert await manager.get("/jobs") == {"jobs": [{"id": job_id, "status": "RUNNING"}]}
    (job,) = (await manager.get("/jobs/overview"))["jobs"]
    assert set(job) == JOB_OVERVIEW
    assert set(job["tasks"]) == JOB_TASKS
    assert (job["name"], job["state"], job["end-time"]) == ("Words", "RUNNING", -1)
    assert (job["tasks"]["running"], job["tasks"]["total"]) == (4, 4)


async def test_a_running_jobs_details(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    await eventually(lambda: manager.launcher.drivers[0].session_id)

    async def details() -> dict[str, Any] | None:
        answer = await manager.get(f"/jobs/{job_id}")
        return answer if answer["queries"][0]["last-batch-rows"] is not None else None

    job = await eventually(details)

    assert set(job) >= JOB
    assert [vertex["name"] for vertex in job["vertices"]] == ["Source: lines", "count", "Sink: console"]
    for vertex in job["vertices"]:
        assert set(vertex) >= VERTEX
        assert set(vertex["metrics"]) >= METRICS
        assert set(vertex["tasks"]) == EXECUTION_STATES
        assert vertex["tasks"]["RUNNING"] == vertex["parallelism"]
    assert set(job["status-counts"]) == EXECUTION_STATES
    count = next(node for node in job["plan"]["nodes"] if node["id"] == COUNT.id)
    assert [source["ship_strategy"] for source in count["inputs"]] == ["HASH"]
    assert job["queries"] == [
        {
            "name": "wordcount",
            "last-batch-id": 5,
            "last-batch-rows": 12,
            "last-batch-duration": 34,
            "watermark": None,
            "batches": None,
            "sink": "Sink: console",
            "after-restore": None,
        }
    ]


async def test_a_figure_that_spark_does_not_report_is_unknown_and_not_0(manager: RunningJobManager) -> None:
    """Spark reports only epochs for a query with the continuous trigger."""
    job_id = await manager.submit_running()
    driver = await manager.driver(1)
    driver.sends_heartbeats = False
    progress = {"epochs": QueryProgress(7, None, None)}
    await driver.send(Heartbeat(driver.session_id, job_id, 1, progress, ()))

    async def query() -> dict[str, Any] | None:
        answer = await manager.get(f"/jobs/{job_id}")
        return next((each for each in answer["queries"] if each["name"] == "epochs"), None)

    assert await eventually(query) == {
        "name": "epochs", "last-batch-id": 7, "last-batch-rows": None, "last-batch-duration": None, "watermark": None,
        "batches": None, "sink": None, "after-restore": None,
    }  # fmt: skip


async def test_a_vertex_counts_the_rows_that_spark_counts_and_marks_the_rest(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()

    async def metrics() -> dict[str, dict[str, Any]] | None:
        found = {each["id"]: each["metrics"] for each in (await manager.get(f"/jobs/{job_id}"))["vertices"]}
        return found if found[SOURCE.id]["write-records"] else None

    found = await eventually(metrics)

    def counted(vertex: Vertex) -> dict[str, Any]:
        return {name: count for name, count in found[vertex.id].items() if found[vertex.id].get(f"{name}-complete")}

    assert counted(SOURCE) == {"write-records": 60}
    assert counted(COUNT) == {}, "Spark counts what is in the state and not what goes in"
    assert counted(SINK) == {}, "the sink does not count"
    assert found[SINK.id]["read-records"] == 0
    ours = {name: count for name, count in found[COUNT.id].items() if name.startswith("state-")}
    assert ours == {"state-rows": 7, "state-rows-updated": 40, "state-rows-removed": 0, "state-rows-late": 3}
    source = await manager.get(f"/jobs/{job_id}/vertices/{SOURCE.id}")
    assert [each["metrics"]["write-records"] for each in source["subtasks"]] == [60]
    count = await manager.get(f"/jobs/{job_id}/vertices/{COUNT.id}")
    assert [set(each["metrics"]) for each in count["subtasks"]] == [METRICS, METRICS], "Spark does not count by subtask"


async def test_config_has_what_a_new_start_of_the_job_needs(manager: RunningJobManager) -> None:
    configuration = {"execution.checkpointing.interval": "5 s", "spark.sql.shuffle.partitions": "2"}
    job_id = await manager.submit_running(configuration, programArgsList=["--input", "/in"], parallelism=3)

    config = await manager.get(f"/jobs/{job_id}/config")

    assert set(config["execution-config"]) == {
        "restart-strategy",
        "job-parallelism",
        "object-reuse-mode",
        "user-config",
    }
    launch = config["launch"]
    again = await manager.post(f"/jars/{launch.pop('jarId')}/run", launch)
    await manager.until(again["jobid"], "RUNNING")
    assert manager.launcher.specs[0].program_args == manager.launcher.specs[1].program_args
    assert manager.launcher.specs[0].configuration == manager.launcher.specs[1].configuration


async def test_a_checkpoint_its_operators_and_its_subtasks(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    checkpoint_id = await manager.checkpoint(job_id)

    statistics = await manager.get(f"/jobs/{job_id}/checkpoints")
    details = await manager.get(f"/jobs/{job_id}/checkpoints/details/{checkpoint_id}")
    subtasks = await manager.get(f"/jobs/{job_id}/checkpoints/details/{checkpoint_id}/subtasks/{COUNT.id}")

    assert set(statistics) == {"counts", "summary", "latest", "history"}
    assert set(statistics["history"][0]) == CHECKPOINT
    assert details["tasks"][COUNT.id]["num_acknowledged_subtasks"] == 2
    assert [subtask["index"] for subtask in subtasks["subtasks"]] == [0, 1]


async def test_the_checkpoint_configuration(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running({"execution.checkpointing.interval": "5 s"})

    config = await manager.get(f"/jobs/{job_id}/checkpoints/config")

    assert set(config) >= CHECKPOINT_CONFIG
    assert (config["mode"], config["interval"], config["timeout"]) == ("exactly_once", 5000, 600000)
    assert config["externalization"] == {"enabled": False, "delete_on_cancellation": True}


async def test_all_routes_are_served_under_v1_too(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()

    assert await manager.get(f"/v1/jobs/{job_id}/status") == {"status": "RUNNING"}
    assert (await manager.get("/v1/jobs/overview"))["jobs"][0]["jid"] == job_id


async def test_an_ended_job_remains_visible(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    await manager.checkpoint(job_id)
    await manager.cancel(job_id)
    await manager.until(job_id, "CANCELED")

    (job,) = (await manager.get("/jobs/overview"))["jobs"]

    assert (job["state"], job["end-time"] > 0) == ("CANCELED", True)
    assert (await manager.get(f"/jobs/{job_id}/checkpoints"))["counts"]["completed"] == 1


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/jobs/00000000000000000000000000000001", 404, "Job 00000000000000000000000000000001 not found"),
        ("/jobs/00000000000000000000000000000001/checkpoints", 404, "Job 00000000000000000000000000000001 not found"),
        ("/jobs/zzz/checkpoints", 400, 'Cannot resolve path parameter (jobid) from value "zzz"'),
        ("/jobs/{job}/checkpoints/details/999", 404, "Could not find checkpointing statistics for checkpoint 999."),
        ("/jobs/{job}/checkpoints/details/x", 400, "Cannot resolve path parameter (checkpointid)"),
        ("/jobs/{job}/checkpoints/details/1/subtasks/" + "0" * 32, 404, "no checkpoint statistics for task"),
        ("/jobs/{job}/savepoints/" + "0" * 32, 404, "There is no savepoint operation with triggerId="),
        ("/jobs/{job}/checkpoints/" + "0" * 32, 404, "There is no checkpoint operation with triggerId="),
        ("/savepoint-disposal/" + "0" * 32, 404, "There is no disposal operation"),
        ("/jobs/{job}/exceptions?maxExceptions=0", 400, "maxExceptions"),
        ("/nowhere", 404, "Not found"),
    ],
)
async def test_missing_resource_is_answered_in_flinks_form(
    manager: RunningJobManager, path: str, status: int, text: str
) -> None:
    job_id = await manager.submit_running()
    await manager.checkpoint(job_id)

    with pytest.raises(RequestRefused) as refusal:
        await manager.get(path.replace("{job}", job_id))

    assert refusal.value.status == status
    assert text in str(refusal.value)


async def test_a_finished_job_cannot_be_canceled(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()
    await (await manager.driver(1)).finish()
    await manager.until(job_id, "FINISHED")

    with pytest.raises(RequestRefused, match=r"another terminal state \(FINISHED\)") as refusal:
        await manager.cancel(job_id)

    assert refusal.value.status == 409


async def test_an_explicit_incremental_checkpoint_is_refused_as_flink_does(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()

    with pytest.raises(RequestRefused) as refusal:
        await manager.post(f"/jobs/{job_id}/checkpoints", {"checkpointType": "INCREMENTAL"})

    assert refusal.value.status == 500


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"target-directory": 5}, "target-directory"),
        ({"cancel-job": "yes"}, "cancel-job"),
        ({"formatType": "ZIP"}, "formatType"),
        ({"triggerId": "abc"}, "triggerId"),
    ],
)
async def test_a_wrong_field_is_named(manager: RunningJobManager, body: dict[str, Any], field: str) -> None:
    job_id = await manager.submit_running()

    with pytest.raises(RequestRefused) as refusal:
        await manager.post(f"/jobs/{job_id}/savepoints", body)

    assert (refusal.value.status, str(refusal.value).partition(":")[0]) == (400, field)


async def test_unknown_fields_are_ignored(manager: RunningJobManager) -> None:
    job_id = await manager.submit_running()

    assert "location" in await manager.savepoint(job_id, bogus=1)
