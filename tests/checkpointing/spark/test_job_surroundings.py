"""A real job from a wheel, with a library, variables and secrets, is restarted from the command line."""

from __future__ import annotations

import asyncio
import json
import os
import zipfile
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tests.checkpointing.jobs.running_job_manager import RunningJobManager, eventually
from tests.checkpointing.spark.conftest import PROGRAMS, Words

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]

LIMIT_S = 180.0
IMPORTS = "from pyspark.sql.functions import udf\nfrom voice.loud import shout\n"


@pytest.fixture
def launcher_environ() -> dict[str, str]:
    return {**os.environ, "AWS_SECRET_ACCESS_KEY": "the job manager's", "OWN_ENVIRONMENT": "the job manager's"}


def wheel(path: Path, **modules: str) -> Path:
    """Write a pure Python wheel of one package."""
    name = path.name.partition("-")[0]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        for module, source in modules.items():
            archive.writestr(f"{name}/{module}.py", source)
    return path


def content(path: Path) -> bytes:
    """Return the content of a file, or b"" if the clean-up of its job has removed it."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


async def test_a_job_gets_its_libraries_variables_and_secrets_also_after_a_restart(
    manager: RunningJobManager, tmp_path: Path, words: Words
) -> None:
    async def command(*arguments: str) -> str:
        out = StringIO()
        await asyncio.to_thread(call_command, *arguments, "--jobmanager", manager.address, stdout=out)
        return out.getvalue()

    def surroundings() -> Any:
        return json.loads((words.output / "surroundings").read_text())["variables"]

    source = (PROGRAMS / "surroundings.py").read_text()
    shouted = source.replace('groupBy("value")', 'groupBy(udf(shout)("value").alias("value"))')
    program = wheel(tmp_path / "orders-1.0-py3-none-any.whl", __init__="", job=IMPORTS + shouted)
    library = wheel(tmp_path / "voice-1.0-py3-none-any.whl", __init__="", loud="def shout(word): return word.upper()\n")
    (tmp_path / "token").write_text("hunter2\n")

    await command(
        "submit", f"{program}:orders.job:counts", "--name", "Orders", "--parallelism", "2",
        *("--arg", f"input={words.input}", "--arg", f"output={words.output}"),
        *("--conf", f"spark.submit.pyFiles={library}", "--conf", "waymark.env.OWN_STAGE=test"),
        *("--secret", f"OWN_TOKEN={tmp_path / 'token'}"),
    )  # fmt: skip
    words.write("f1", ["one", "all"])
    await eventually(lambda: words.counts() == {"ONE": 1, "ALL": 1}, LIMIT_S)
    assert surroundings() == {"OWN_STAGE": "test", "OWN_TOKEN": "hunter2"}

    (words.output / "surroundings").unlink()
    restarted = json.loads(await command("job", "restart", "Orders", "--json"))
    words.write("f2", ["two", "all"])
    await eventually(lambda: words.counts() == {"ONE": 1, "TWO": 1, "ALL": 2}, LIMIT_S)
    assert surroundings() == {"OWN_STAGE": "test", "OWN_TOKEN": "hunter2"}
    assert json.loads(await command("job", "cancel", "Orders", "--json"))["job"] == restarted["job"]
    # os.walk skips directories that the clean-up of the job removes meanwhile.
    walked = os.walk(tmp_path / "state" / "jobs")
    attempts = [(Path(directory), names) for directory, _, names in walked if "/attempt-" in directory]
    written = [directory / name for directory, names in attempts for name in names]
    assert "driver.json" in {path.name for path in written}
    assert [path for path in written if b"hunter2" in content(path)] == []
