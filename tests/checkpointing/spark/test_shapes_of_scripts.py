"""Scripts with the features of public ones, in a real driver: relative paths, a listener, several queries, any sink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from checkpointing.model.messages import DriverState

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(900)]

QUERIES = {f"{sensor}_{kind}" for sensor in ("heat", "tilt") for kind in ("valid", "rejected", "metrics")}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the directory to which the script's paths are relative, with input."""
    place = tmp_path / "place"
    for sensor in ("heat", "tilt"):
        (place / "streams" / sensor).mkdir(parents=True)
        write(place, sensor, "1", 1.5, 20.0, None)
    return place


def write(place: Path, sensor: str, name: str, *values: float | None) -> None:
    lines = "".join(json.dumps({"sensor": sensor, "value": value}) + "\n" for value in values)
    partial = place / "streams" / f".{sensor}-{name}"
    partial.write_text(lines)
    partial.rename(place / "streams" / sensor / f"{name}.json")


def values(output: Path) -> list[float | None]:
    """Return the values that readers see in the log of Spark's file sink, none while a restore replaces the log."""
    logs = sorted(output.glob("_spark_metadata/[0-9]*"), key=lambda log: int(log.stem))
    newest_compacted = max((at for at, log in enumerate(logs) if log.suffix == ".compact"), default=0)
    try:
        entries = [json.loads(line) for log in logs[newest_compacted:] for line in log.read_text().splitlines()[1:]]
        files = [Path(entry["path"].removeprefix("file://")).read_text() for entry in entries]
    except FileNotFoundError:
        return []
    return sorted((json.loads(row).get("value") for file in files for row in file.splitlines()), key=str)


def test_several_queries_continue_from_a_checkpoint_below_the_same_directory(
    job_manager: Any, drivers: Any, place: Path, eventually: Any
) -> None:
    given: dict[str, Any] = {"program": "shapes.py", "configuration": {"waymark.directory": str(place)}}
    arguments = ("--sensors", "heat", "tilt")
    first = drivers.start(job_manager, "shapes.py", arguments, **given)
    job_manager.await_state(1, DriverState.RUNNING)
    assert {vertex.query for vertex in job_manager.vertices} == QUERIES

    eventually("valid rows", lambda: values(place / "bronze/heat") == values(place / "bronze/tilt") == [1.5, 20.0])
    eventually("rejected rows", lambda: values(place / "rejected/heat") == values(place / "rejected/tilt") == [None])
    assert set((place / "started").read_text().split()) == QUERIES
    checkpoint = job_manager.complete(1)
    write(place, "heat", "2", 3.0)
    eventually("what is abandoned", lambda: 3.0 in values(place / "bronze/heat"))
    first.kill()

    drivers.start(job_manager, "shapes.py", arguments, attempt=2, restore=checkpoint, **given)
    job_manager.await_state(2, DriverState.RUNNING)
    write(place, "heat", "3", 4.0)
    eventually("each row once", lambda: values(place / "bronze/heat") == [1.5, 20.0, 3.0, 4.0])
    assert values(place / "bronze/tilt") == [1.5, 20.0]


def test_available_input_is_read_once_and_the_script_ends(job_manager: Any, drivers: Any, place: Path) -> None:
    drivers.start(
        job_manager, "shapes.py", ("--sensors", "heat", "tilt", "--once"),
        program="shapes.py", configuration={"waymark.directory": str(place)},
    )  # fmt: skip
    job_manager.await_state(1, DriverState.ENDED)
    assert (place / "ended").read_text() == "2 1 2 2 1 2"  # Spark filters rows while it reads JSON
    assert values(place / "bronze/heat") == [1.5, 20.0]
    metrics = [json.loads(row) for path in (place / "metrics").rglob("*.json") for row in path.read_text().splitlines()]
    assert sorted((each["status"], each["count"]) for each in metrics) == [("heat", 2), ("tilt", 2)]
