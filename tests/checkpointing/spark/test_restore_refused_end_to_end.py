"""Jobs with a real job manager and real drivers whose restore would write rows a second time, or lose rows."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from checkpointing.jobs.attempts import JobDirectory
from checkpointing.jobs.restore import AFTER_RESTORE
from checkpointing.model.messages import AfterRestore
from checkpointing.rest.client import RequestRefused
from tests.checkpointing.jobs.running_job_manager import RunningJobManager
from tests.checkpointing.jobs.running_job_manager import eventually as soon
from tests.checkpointing.spark.conftest import Words
from tests.checkpointing.spark.test_restarts_end_to_end import LIMIT_S, RESTART, WordCount, submitted

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]

REPEATING = """
import json
from pathlib import Path


def lines(spark, args):
    def write(frame, batch):
        rows = sorted(row["value"] for row in frame.collect())
        Path(args["output"], f".{batch}").write_text(json.dumps(rows))
        Path(args["output"], f".{batch}").rename(Path(args["output"], f"{batch}.json"))

    rows = spark.readStream.format("text").option("maxFilesPerTrigger", args["files-per-batch"]).load(args["input"])
    return rows.writeStream.queryName("lines").foreachBatch(write).option("waymark.batch-numbers", "repeat")
"""
INTO_FILES = """
def files(spark, args):
    rows = spark.readStream.format("text").load(args["input"])
    return rows.writeStream.queryName("lines").format("json").option("path", args["output"])
"""
REFUSE = RESTART | {AFTER_RESTORE: "refuse", "execution.state-recovery.from-local": "false"}


async def test_an_automatic_restore_is_refused_and_a_persons_continues(
    manager: RunningJobManager, words: Words
) -> None:
    job = WordCount(manager, words, await submitted(manager, words, REFUSE))
    details = await job.runs_attempt(1)
    assert [query["after-restore"] for query in details["queries"]] == ["written-again"]
    job.feed(1)
    await job.has_counted()
    number = await manager.checkpoint(job.job_id)
    job.feed(2)
    await job.has_counted()
    os.killpg(details["attempts"][0]["pid"], signal.SIGKILL)

    await soon(lambda: ended(manager, job.job_id), LIMIT_S)
    exceptions = (await manager.get(f"/jobs/{job.job_id}/exceptions"))["exceptionHistory"]["entries"]
    assert (exceptions[0]["exceptionName"], exceptions[0]["attempt"]) == ("RowsWouldBeWrittenAgain", 2)
    assert "words to foreach" in exceptions[0]["message"]
    location = Path(manager.settings.checkpoint_directory, job.job_id, f"chk-{number}")
    assert (location / "_metadata").exists(), "the retention of a failed job has removed what a person needs"
    assert len(list(words.output.glob("*.json"))) == 2, "the refused attempt has written something"

    verdict = await manager.post("/savepoints/validate", {"savepointPath": str(location)})
    assert [query["after-restore"] for query in verdict["queries"]] == ["written-again"]
    jar_id = (await manager.get("/jars"))["files"][0]["id"]
    launch = await manager.get(f"/jobs/{job.job_id}/launch")
    asked = {name: launch[name] for name in ("entryClass", "programArgsList", "parallelism", "flinkConfiguration")}
    again = (await manager.post(f"/jars/{jar_id}/run", asked | {"savepointPath": str(location)}))["jobid"]
    await WordCount(manager, words, again).runs_attempt(1)
    record = JobDirectory(manager.settings.state_directory / "jobs", again).read_record()
    assert record is not None
    assert [sink.after_restore for sink in record.sinks] == [AfterRestore.WRITTEN_AGAIN]
    await soon(lambda: len(list(words.output.glob("*.json"))) > 2, LIMIT_S)
    assert words.counts() == job.expected


async def ended(manager: RunningJobManager, job_id: str) -> bool:
    return await manager.status(job_id) == "FAILED"


async def test_a_state_whose_batches_a_query_has_replaced_is_refused(manager: RunningJobManager, words: Words) -> None:
    jar = await manager.upload(REPEATING)

    async def submitted(files_per_batch: int, savepoint: str | None, **more: bool) -> str:
        arguments = [*words.arguments, f"--files-per-batch={files_per_batch}"]
        request = {"entryClass": "wordcount.py:lines", "programArgsList": arguments, "savepointPath": savepoint}
        return str((await manager.post(f"/jars/{jar}/run", request | more))["jobid"])

    async def wrote(batch: int, rows: list[str]) -> None:
        file = words.output / f"{batch}.json"
        await soon(lambda: file.exists() and json.loads(file.read_text()) == rows, LIMIT_S)

    first = await submitted(1, None)
    words.write("0", ["a"])
    await wrote(0, ["a"])
    older = (await manager.savepoint(first))["location"]
    words.write("1", ["b"])
    await wrote(1, ["b"])
    words.write("2", ["c"])
    await wrote(2, ["c"])
    newer = (await manager.savepoint(first))["location"]
    await canceled(manager, first)

    second = await submitted(2, older)
    await wrote(1, ["b", "c"])
    await canceled(manager, second)

    with pytest.raises(RequestRefused, match="was restored to batch 0 after that savepoint was taken"):
        await submitted(1, newer)
    third = await submitted(1, newer, allowNonRestoredState=True)
    await soon(lambda: ended(manager, third), LIMIT_S)
    exceptions = (await manager.get(f"/jobs/{third}/exceptions"))["exceptionHistory"]["entries"]
    assert exceptions[0]["exceptionName"] == "BatchesWereReplaced"
    assert "was restored to batch 0 after that savepoint was taken" in exceptions[0]["message"]
    await WordCount(manager, words, await submitted(1, older)).runs_attempt(1)


async def test_a_clone_of_a_job_that_runs_is_refused_its_output(manager: RunningJobManager, words: Words) -> None:
    """Both jobs would lose rows: the sink skips the older job's batches, and the newer job moves that job's files."""
    jar = await manager.upload(INTO_FILES)

    async def submitted(savepoint: str | None, output: Path) -> str:
        arguments = ["--input", str(words.input), f"--output={output}"]
        request = {"entryClass": "wordcount.py:files", "programArgsList": arguments, "savepointPath": savepoint}
        return str((await manager.post(f"/jars/{jar}/run", request))["jobid"])

    async def wrote(rows: list[str], output: Path) -> None:
        def found() -> list[str]:
            lines = (line for file in output.glob("part-*.json") for line in file.read_text().splitlines())
            try:
                return sorted(json.loads(line)["value"] for line in lines)
            except FileNotFoundError:  # a restore moves files away
                return []

        await soon(lambda: found() == rows, LIMIT_S)

    first = await submitted(None, words.output)
    words.write("0", ["a"])
    await wrote(["a"], words.output)
    savepoint = (await manager.savepoint(first))["location"]

    clone = await submitted(savepoint, words.output)
    await soon(lambda: ended(manager, clone), LIMIT_S)
    exceptions = (await manager.get(f"/jobs/{clone}/exceptions"))["exceptionHistory"]["entries"]
    assert exceptions[0]["exceptionName"] == "SinkDirectoryTaken"
    assert f"is written by job {first}, which has not ended" in exceptions[0]["message"]
    words.write("1", ["b"])
    await wrote(["a", "b"], words.output)

    elsewhere = words.output.with_name("elsewhere")
    await submitted(savepoint, elsewhere)
    await wrote(["b"], elsewhere)
    await canceled(manager, first)
    words.write("2", ["c"])
    await submitted(savepoint, words.output)
    await wrote(["a", "b", "c"], words.output)


async def canceled(manager: RunningJobManager, job_id: str) -> None:
    await manager.cancel(job_id)
    await manager.until(job_id, "CANCELED")
