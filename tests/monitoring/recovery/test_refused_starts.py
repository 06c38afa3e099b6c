"""A job is lost, and only starts show which checkpoints exist. The Flink is simulated, but really polled."""

import sys
from collections.abc import Iterator
from datetime import timedelta

import pytest

from monitoring.alerts.evaluation import evaluate_due
from monitoring.models import (
    AttemptState,
    Cluster,
    Engine,
    Incident,
    Job,
    RefusedStart,
    RestartAttempt,
    Run,
    Savepoint,
)
from monitoring.recovery import moving
from monitoring.recovery.cycle import advance
from monitoring.recovery.traces import remove_traces
from tests.monitoring.fire.world import NAME, World

FAILS_BADLY = """#!{python}
import json, sys, urllib.request as web
body = {{"savepointPath": sys.argv[1], "jobId": sys.argv[2], "flinkConfiguration": {{"pipeline.name": {name!r}}}}}
web.urlopen(web.Request("{url}/jars/program.py/run", json.dumps(body).encode(), method="POST")).read()
job = json.load(web.urlopen("{url}/jobs/overview"))["jobs"][-1]
sys.exit(job["state"] == "FAILED" and "Cannot find checkpoint or savepoint " + sys.argv[1])
"""


@pytest.fixture
def world(db) -> Iterator[World]:
    """Yield a job with two completed and polled checkpoints, which Flink retains."""
    world = World(skew_s=0, can_validate=False, per_hour=6)
    yield world
    world.close()


@pytest.fixture
def polled_between(world, monkeypatch) -> None:
    """Poll the cluster before the outcome of each step is stored."""
    real = moving._settle

    def settle(*given):
        world.wait(1)
        world.poll()
        return real(*given)

    monkeypatch.setattr(moving, "_settle", settle)


def lose(world: World, unseen: int = 0) -> list[str]:
    """Replace the job manager after the last poll and `unseen` further checkpoints. Return all checkpoints' paths."""
    run = world.living()
    assert run is not None
    world.wait(0.5)
    places = [f"file:/cp/{run.id}/chk-{number}" for number in (1, 2)]
    places += [world.engine.checkpoint(run) for _ in range(unseen)]
    world.engine.forget(run)
    return places


def go_on(world: World, until, limit: int = 80) -> None:
    """Run cycles and alert rules, two seconds apart, until `until` is true."""
    for _ in range(limit):
        world.wait(2)
        world.cycle()
        evaluate_due(world.now)
        if until():
            return
    raise AssertionError(world.story())


def succeeded(world: World):
    return lambda: any(each.state == AttemptState.SUCCEEDED for each in world.attempts())


def launched_from(world: World) -> list[str]:
    return [each.path for each in world.engine.launches if each.name == NAME]


def test_the_checkpoint_that_was_seen_is_tried_before_any_guess(world):
    *_, seen = lose(world)
    go_on(world, succeeded(world))
    assert launched_from(world) == [seen]


def test_checkpoints_that_no_poll_saw_come_after_the_newest_seen_one_and_before_older_ones(world):
    """The engine retains one checkpoint, the second one after the newest polled one."""
    world.job.savepoints.create(
        run=world.job.current_run, origin="manual", state="completed", path="file:/sp/1", requested_at=world.now
    )
    Savepoint.objects.update(requested_at=world.now - timedelta(hours=1))
    _, seen, third, fourth = places = lose(world, unseen=2)
    world.engine.stored -= {*places[:3]}
    go_on(world, succeeded(world))
    assert launched_from(world) == [seen, third, fourth]
    assert world.attempts()[-1].restore_path == fourth


def test_a_refused_start_is_no_run_no_incident_and_no_flapping(world, polled_between):
    *gone, _ = lose(world, unseen=2)
    world.engine.stored -= {*gone}
    go_on(world, succeeded(world))
    for _ in range(5):
        world.wait(20)
        world.cycle()
        evaluate_due(world.now)
    assert len(launched_from(world)) == 3
    assert list(world.job.runs.order_by("number").values_list("number", "state")) == [(1, "LOST"), (2, "RUNNING")]
    result = {incident.kind: incident.sentence for incident in Incident.objects.filter(job=world.job)}
    assert not any("flapping" in sentence or "run 3" in sentence for sentence in result.values()), result
    assert not Incident.objects.filter(job=world.job).exclude(state="resolved").exists(), result


def test_the_checkpoints_of_a_refused_start_are_not_read(world):
    *gone, _ = lose(world, unseen=2)
    world.engine.stored -= {*gone}
    go_on(world, succeeded(world))
    for _ in range(5):
        world.wait(2)
        world.poll()
    refused = set(RefusedStart.objects.values_list("engine_job_id", flat=True))
    assert len(refused) == 2
    read = [each.job_id for each in world.engine.asked if each.call == "read" and each.job_id in refused]
    assert len(read) <= 2 * len(refused)  # the restart reads why the starts failed


def test_a_start_that_fails_for_another_reason_is_a_run(world):
    """The snapshot is not the reason. The restart ends, and the death counts like any other."""
    lose(world)
    world.engine.starts_as = "FAILED"
    go_on(world, lambda: world.job.runs.count() > 1)
    assert world.job.current_run.state == "FAILED"
    assert not RefusedStart.objects.exists()


def test_a_refused_state_is_known_to_the_next_attempt(world):
    """Guessed paths are not tried again. Polled checkpoints are tried again after all untried ones."""
    oldest, seen = lose(world)
    world.engine.stored.clear()
    go_on(world, lambda: any(each.state == AttemptState.FAILED for each in world.attempts()))
    first = launched_from(world)
    assert first[0] == seen
    assert first[-1] == oldest
    guesses = first[1:-1]
    assert guesses
    world.engine.stored.add(seen)  # the storage is available again
    go_on(world, succeeded(world))
    assert launched_from(world) == [*first, seen]


def test_a_refusal_for_another_reason_is_forgotten(world):
    """The program does not start for a while, which proves nothing about any snapshot."""
    *gone, third = lose(world, unseen=1)
    world.engine.stored -= {*gone}
    world.engine.answers["run"] = (400, "The main method caused an error: Timed out connecting to Kafka.")
    go_on(world, lambda: any(each.state == AttemptState.FAILED for each in world.attempts()))
    world.engine.answers.clear()
    go_on(world, succeeded(world))
    assert launched_from(world)[0] == gone[-1]
    assert launched_from(world)[-1] == third


def test_a_refused_state_is_tried_after_the_others(world):
    *_, seen = lose(world)
    world.engine.stored -= {seen}
    attempt = RestartAttempt.objects.create(
        job=world.job, epoch=0, trigger="automatic", state="failed", reason="", engine_job_id="f" * 32,
        created_at=world.now, deadline_at=world.now, ended_at=world.now,
    )  # fmt: skip
    RefusedStart.objects.create(attempt=attempt, engine_job_id="e" * 32, path=seen, refused_at=world.now)
    go_on(world, succeeded(world))
    assert launched_from(world)[0] != seen


def test_the_newest_snapshot_is_tried_first_if_the_engine_can_check_it(world):
    """Validation needs no start, and begins with checkpoints that were never polled."""
    Cluster.objects.update(engine=Engine.SPARK)
    world.engine.can_validate = True
    places = lose(world, unseen=1)
    go_on(world, succeeded(world))
    assert launched_from(world) == [places[-1]]


def test_a_refused_command_under_an_id_of_the_engine_creates_no_run(world, polled_between, tmp_path):
    path = tmp_path / "start.py"
    path.write_text(FAILS_BADLY.format(python=sys.executable, url=world.engine.url, name=NAME).replace(
        '"jobId": sys.argv[2]', '"jobId": __import__("uuid").uuid4().hex'
    ))  # fmt: skip
    path.chmod(0o755)
    Job.objects.filter(name=NAME).update(launch={"kind": "command", "command": [str(path), "{savepoint}"]})
    *gone, third = lose(world, unseen=1)
    world.engine.stored -= {*gone}
    go_on(world, lambda: third in launched_from(world))
    world.cycle()
    assert not Run.objects.filter(job=world.job, state="FAILED").exists()


def made_by_flink(root, start, *files):
    directory = root / start
    for name in ("shared", "taskowned"):
        (directory / name).mkdir(parents=True)
    for name in files:
        (directory / name).write_bytes(b"x")
    return directory


@pytest.fixture
def refused(rows, job, tmp_path):
    """Return a function that stores a refused start with a job ID. The runs' checkpoints are below `tmp_path`."""
    rows.checkpoint(job.current_run, 8, external_path=f"file:{tmp_path}/{job.current_run.engine_job_id}/chk-8")
    attempt = RestartAttempt.objects.create(
        job=job, epoch=0, trigger="automatic", state="failed", reason="", engine_job_id="f" * 32,
        created_at=rows.now, deadline_at=rows.now, ended_at=rows.now,
    )  # fmt: skip

    def make(engine_job_id):
        return RefusedStart.objects.create(attempt=attempt, engine_job_id=engine_job_id, path="", refused_at=rows.now)

    return make


def test_the_empty_directory_of_a_refused_start_is_removed_and_no_other(refused, tmp_path, settings):
    settings.STATE_ROOTS = (str(tmp_path),)
    empty, used = made_by_flink(tmp_path, "a" * 32), made_by_flink(tmp_path, "b" * 32, "shared/0815")
    other = made_by_flink(tmp_path, "c" * 32)
    starts = [refused("a" * 32), refused("b" * 32), refused("d" * 32)]
    remove_traces()
    assert (empty.exists(), (used / "shared" / "0815").exists(), other.exists()) == (False, True, True)
    for start in starts:
        start.refresh_from_db()
    assert [start.left_directory for start in starts] == ["", f"file:{used}", ""]


def test_a_directory_that_waymark_cannot_reach_is_named(refused, tmp_path, settings):
    settings.STATE_ROOTS = ()
    directory, start = made_by_flink(tmp_path, "a" * 32), refused("a" * 32)
    remove_traces()
    start.refresh_from_db()
    assert directory.exists()
    assert start.left_directory == f"file:{directory}"


def test_a_cycle_removes_leftovers_of_its_refused_starts(refused, tmp_path, settings, now):
    settings.STATE_ROOTS = (str(tmp_path),)
    directory = made_by_flink(tmp_path, "a" * 32)
    refused("a" * 32)
    advance(now)
    assert not directory.exists()
