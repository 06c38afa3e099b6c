"""The whole loop in the browser: submit a job, watch it, restart it by one click, kill it, count the rows.

It uses real servers, a real Spark and a real browser. Every input row must be in the result exactly once.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Page, expect

from dashboard.demo.input import read_flights
from tests.stack.product import ROOT, Stack, start
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.stack, pytest.mark.spark, pytest.mark.browser, pytest.mark.timeout(1500)]

expect.set_options(timeout=60_000)

PICTURES = ROOT / "var" / "test"
PROGRAM = ROOT / "dashboard" / "demo" / "programs" / "flights_by_route.py"
CHECKPOINTS = ("--conf", "execution.checkpointing.interval=2s", "--conf",
               "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION")  # fmt: skip
ROUTES = "Routes of the test"
MOODY = "Moody"


@dataclass
class Upstream:
    """A source that writes real flights to a directory, file by file. `rows` has the rows that jobs must count."""

    directory: Path
    flights: Iterator[dict[str, Any]]
    rows: list[dict[str, Any]]
    files: int = 0

    def deliver(self, count: int) -> None:
        rows = [{"id": len(self.rows) + number, **row} for number, row in enumerate(islice(self.flights, count))]
        unfinished = self.directory / f".{self.files:05d}.new"
        unfinished.write_text("".join(json.dumps(row) + "\n" for row in rows))
        unfinished.rename(self.directory / f"{self.files:05d}.json")
        self.rows += rows
        self.files += 1


@pytest.fixture(scope="module")
def upstream(stack: Stack) -> Upstream:
    directory = stack.var / "input"
    directory.mkdir()
    return Upstream(directory, read_flights(), [])


@pytest.fixture(scope="module")
def database(stack: Stack) -> str:
    environment = json.loads((stack.var / "run" / "environment.json").read_text())
    return str(environment["DATABASE_URL"])


@pytest.fixture(scope="module")
def connections(stack: Stack, database: str) -> Path:
    path = stack.var / "connections.json"
    path.write_text(json.dumps({"database": database}))
    return path


@pytest.fixture
def person(page: Page, stack: Stack) -> Page:
    """Return a browser page that is logged in."""
    page.set_default_timeout(60_000)
    page.goto(stack.url("web"))
    page.get_by_label("User").fill("admin")
    page.get_by_label("Password").fill(stack.admin_password)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    return page


def submit(stack: Stack, program: str, name: str, *options: str) -> None:
    answer = stack.manage("submit", program, "--name", name, "--jobmanager", stack.job_manager, *CHECKPOINTS, *options)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def read(database: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database) as connection:
        try:
            return connection.execute(query).fetchall()
        except psycopg.errors.UndefinedTable:
            return []


def routes_counted(database: str) -> Counter[tuple[str, str, str]]:
    rows = read(database, "SELECT tailnum, origin, dest, flights FROM demo_flights_by_route")
    return Counter({(tailnum, origin, dest): flights for tailnum, origin, dest, flights in rows})


def routes_expected(upstream: Upstream) -> Counter[tuple[str, str, str]]:
    return Counter((row["tailnum"] or "unknown", row["origin"], row["dest"]) for row in upstream.rows)


def expect_exact_routes(database: str, upstream: Upstream) -> None:
    expected = routes_expected(upstream)
    eventually("every row counted", lambda: routes_counted(database).total() >= expected.total(), 240)
    assert routes_counted(database) == expected


def completed(stack: Stack, name: str) -> int:
    job = stack.jobs().get(name)
    return int(stack.get(f"/jobs/{job['jid']}/checkpoints")["counts"]["completed"]) if job else 0


def test_a_job_restarted_by_one_click_counts_every_row_once(
    stack: Stack, person: Page, upstream: Upstream, database: str, connections: Path
) -> None:
    upstream.deliver(500)
    args = ("--arg", f"input={upstream.directory}", "--arg", f"connections={connections}")
    # Otherwise a newer checkpoint may replace the selected one before the job stops, and the restart is refused.
    retained = ("--conf", "execution.checkpointing.num-retained=1000")
    submit(stack, f"{PROGRAM}:flights_by_route", ROUTES, *args, *retained)
    eventually("a completed checkpoint", lambda: completed(stack, ROUTES) >= 2)
    expect_exact_routes(database, upstream)

    person.get_by_role("link", name=ROUTES).first.click()
    expect(person.get_by_role("heading", name=ROUTES)).to_be_visible()
    person.get_by_role("button", name="Savepoint now").click()
    person.get_by_role("link", name="Savepoints").last.click()
    restart = person.get_by_role("link", name="Restart from this savepoint")
    expect(restart).to_be_visible(timeout=240_000)

    # The restart discards what the job counted after the savepoint, so these rows must be counted again, once.
    upstream.deliver(700)
    expect_exact_routes(database, upstream)
    restart.first.click()
    person.screenshot(path=PICTURES / "loop-confirm.png", full_page=True)
    person.get_by_role("button", name=re.compile("Restart from")).click()
    expect(person.get_by_text("Job is running again", exact=True)).to_be_visible(timeout=240_000)
    person.screenshot(path=PICTURES / "loop-restarted.png", full_page=True)

    upstream.deliver(300)
    expect_exact_routes(database, upstream)

    # The checkpoint must still exist after the job was stopped.
    person.get_by_role("link", name=ROUTES).first.click()
    person.get_by_role("link", name="Restart from…").click()
    checkpoint = person.get_by_role("link", name=re.compile("^Checkpoint"))
    eventually("a checkpoint of the new run", lambda: person.reload() and checkpoint.count())
    checkpoint.first.click()
    person.get_by_role("button", name=re.compile("Restart from checkpoint")).click()
    expect(person.get_by_text("Job is running again", exact=True)).to_be_visible(timeout=240_000)
    upstream.deliver(300)
    expect_exact_routes(database, upstream)

    # The preselected restart of a running job.
    person.get_by_role("link", name=ROUTES).first.click()
    person.get_by_role("link", name="Restart from…").click()
    offered = person.get_by_role("button", name="Stop with a savepoint and restart")
    eventually("the new run", lambda: person.reload() and offered.count())
    offered.click()
    expect(person.get_by_text("Job is running again", exact=True)).to_be_visible(timeout=240_000)
    expect(person.get_by_text("nothing: the previous run ended with this savepoint")).to_be_visible()
    upstream.deliver(300)
    expect_exact_routes(database, upstream)

    assert stack.jobs()[ROUTES]["state"] == "RUNNING"
    lives = [job for job in stack.get("/jobs/overview")["jobs"] if job["name"] == ROUTES and job["end-time"] < 0]
    assert len(lives) == 1


def test_a_killed_driver_is_replaced_and_counts_every_row_once(stack: Stack, upstream: Upstream, database: str) -> None:
    before = completed(stack, ROUTES)
    pid = driver_pid(stack, ROUTES)
    upstream.deliver(400)
    os.kill(pid, signal.SIGKILL)
    upstream.deliver(400)
    eventually("another driver", lambda: driver_pid(stack, ROUTES) not in (None, pid))
    expect_exact_routes(database, upstream)
    eventually("checkpoints go on", lambda: completed(stack, ROUTES) > before)


def driver_pid(stack: Stack, name: str) -> int | None:
    """Return the pid of the driver of the job's newest attempt, from the record of the attempt."""
    directory = stack.var / "jobmanager" / "jobs" / stack.jobs()[name]["jid"]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text()
        except OSError:
            continue
        if "checkpointing.spark.driver" in command and str(directory) in command:
            return int(process.name)
    return None


def expired_while_fed(stack: Stack, upstream: Upstream) -> int:
    upstream.deliver(10)
    history = stack.get(f"/jobs/{stack.jobs()[MOODY]['jid']}/checkpoints")["history"]
    return sum(checkpoint["status"] == "FAILED" for checkpoint in history)


def carriers_counted(database: str) -> Counter[str]:
    return Counter(dict(read(database, "SELECT carrier, flights FROM moody_counts")))


def expect_exact_carriers(database: str, upstream: Upstream) -> None:
    expected = Counter(row["carrier"] for row in upstream.rows)
    eventually("every row counted", lambda: carriers_counted(database).total() >= expected.total(), 240)
    assert carriers_counted(database) == expected


def test_failed_checkpoints_open_an_incident_and_a_dead_job_is_restarted(
    stack: Stack, person: Page, upstream: Upstream, database: str, connections: Path
) -> None:
    mood = stack.var / "mood"
    mood.write_text("well")
    settings = ("timeout=4s", "tolerable-failed-checkpoints=1000")
    submit(
        stack,
        f"{ROOT / 'tests' / 'stack' / 'programs.py'}:moody_counts",
        MOODY,
        *("--arg", f"input={upstream.directory}", "--arg", f"connections={connections}", "--arg", f"mood={mood}"),
        *(option for setting in settings for option in ("--conf", f"execution.checkpointing.{setting}")),
        *("--conf", "restart-strategy.type=none"),
    )
    eventually("a completed checkpoint", lambda: completed(stack, MOODY) >= 1)

    person.goto(stack.url("web"))
    person.get_by_role("link", name=MOODY).first.click()
    expect(person.get_by_role("heading", name=MOODY)).to_be_visible()
    job_page = person.url

    def takes_a_savepoint() -> bool:
        """Return whether a new savepoint was completed: on a busy machine it may exceed the timeout of 4 s."""
        person.goto(job_page)
        person.get_by_role("button", name="Savepoint now").click()
        person.goto(job_page + "savepoints/")
        with suppress(AssertionError):
            expect(person.get_by_role("link", name="Restart from this savepoint")).to_be_visible(timeout=30_000)
            return True
        return False

    eventually("a savepoint", takes_a_savepoint)

    person.goto(job_page + "alerts/")
    rule = person.get_by_role("row").filter(has_text="Failed checkpoints within a window")
    rule.get_by_role("link", name="Customize").click()
    person.get_by_text("Timing and flapping").click()
    person.get_by_label("Check every").fill("5 s")
    person.get_by_role("button", name="Save rule").click()
    person.goto(job_page + "configuration/")
    person.get_by_label("Restart automatically when the job fails").check()
    person.get_by_role("button", name="Save", exact=True).click()

    mood.write_text("slow")
    eventually("three expired checkpoints", lambda: expired_while_fed(stack, upstream) >= 3, 240)
    person.goto(stack.url("web") + "/incidents/")
    incident = person.get_by_role("row").filter(has_text=MOODY).filter(has_text="checkpoints failed within 15 min")
    eventually("the incident", lambda: person.reload() and incident.first.is_visible(), 180)
    incident.first.get_by_role("link", name="failed within").click()
    expect(person.get_by_text("The batch did not end within the timeout of 4 s").first).to_be_visible()
    person.screenshot(path=PICTURES / "loop-incident.png", full_page=True)
    person.goto(stack.url("web") + "/mail/")
    eventually("its mail", lambda: person.reload() and person.get_by_text(re.compile("Moody")).first.is_visible(), 180)
    person.screenshot(path=PICTURES / "loop-mail.png", full_page=True)

    mood.write_text("broken")
    upstream.deliver(50)
    eventually("the job died", lambda: stack.jobs()[MOODY]["state"] == "FAILED", 180)
    mood.write_text("well")
    eventually("the job is back", lambda: stack.jobs()[MOODY]["state"] == "RUNNING", 240)
    upstream.deliver(50)
    expect_exact_carriers(database, upstream)
    person.goto(job_page + "restarts/")
    expect(person.get_by_text("ConnectionError: the carriers' service is down").first).to_be_visible()
    expect(person.get_by_text("Detect the failure").first).to_be_visible()
    person.screenshot(path=PICTURES / "loop-brought-back.png", full_page=True)

    # The engine does not restart this job, so a killed driver ends the run.
    killed, pid = stack.jobs()[MOODY]["jid"], driver_pid(stack, MOODY)
    assert pid is not None
    upstream.deliver(50)
    os.kill(pid, signal.SIGKILL)
    upstream.deliver(50)
    eventually("another run", lambda: stack.jobs()[MOODY]["jid"] != killed, 240)
    expect_exact_carriers(database, upstream)
    assert stack.jobs()[MOODY]["state"] == "RUNNING"
    expect_exact_routes(database, upstream)


# Count the past minutes, and those whose roll-ups are missing or wrong.
MINUTES = """
SELECT count(*), count(*) FILTER (WHERE (rolled.completed, rolled.failed, rolled.duration_sum)
                                        IS DISTINCT FROM (told.completed, told.failed, told.duration))
FROM (
    SELECT run.job_id, date_trunc('minute', triggered_at) AS start, count(*) FILTER (WHERE status = 'FAILED') AS failed,
           count(*) FILTER (WHERE status = 'COMPLETED') AS completed,
           sum(end_to_end_duration) FILTER (WHERE status = 'COMPLETED')::bigint AS duration
    FROM monitoring_checkpoint JOIN monitoring_run run ON run.id = run_id
    WHERE triggered_at < date_trunc('minute', now()) GROUP BY 1, 2
) told
LEFT JOIN monitoring_rollup rolled ON (rolled.job_id, rolled.start) = (told.job_id, told.start) AND rolled.seconds = 60
"""


def rolled_up(database: str) -> bool:
    ((minutes, others),) = read(database, MINUTES)
    return minutes > 2 and others == 0


def test_a_second_start_continues_where_the_first_stopped(stack: Stack, upstream: Upstream, database: str) -> None:
    jobs = stack.jobs()
    assert stack.stop() == 0
    upstream.deliver(200)
    again = start(stack.var.parent, WAYMARK_HISTORY_PIPELINE="on", WAYMARK_HISTORY_EVERY="2")
    try:
        for name in (ROUTES, MOODY):
            eventually(f"{name} runs again", lambda name=name: again.jobs()[name]["state"] == "RUNNING", 240)
            assert again.jobs()[name]["jid"] == jobs[name]["jid"]
        expect_exact_routes(database, upstream)
        eventually("roll-ups of all that is over", lambda: rolled_up(database), 240)
        again.keep_logs(PICTURES / "second_start")
    finally:
        assert again.stop() == 0
