"""Programs that Waymark did not start, with three versions of PySpark: what is stored equals Spark's own progress."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations, product

import pytest

from monitoring.models import Job, QuerySource, Run, RunState
from tests.foreign.comparing import check_files, check_reported
from tests.foreign.foreign_programs import SHAPES, VERSIONS, Place, Query, example, foreign
from tests.foreign.watching import Waymark, until
from tests.talker import talker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.django_db(transaction=True),
]

BATCHES = 4
RUNNING = ("windowed", "windowed_rocksdb", "distinct", "joined_rocksdb", "written")
# Spark's own examples that it accepts, with the name of each program, its arguments after the address of the words, and
# the codec of a rolling event log. The default is the version's: one plain file in Spark 3.5.
EXAMPLES = {
    "structured_network_wordcount": ("StructuredNetworkWordCount", (), "lz4"),
    "structured_network_wordcount_windowed": ("StructuredNetworkWordCountWindowed", ("4", "2"), "zstd"),
    "structured_network_wordcount_session_window": ("StructuredNetworkWordCountSessionWindow", (), ""),
}
RUNNABLE = [*product(EXAMPLES, VERSIONS)]
# It calls applyInPandasWithState, which fails in Spark 3.5 with the pyarrow of today.
RUNNABLE.remove(("structured_network_wordcount_session_window", VERSIONS[0]))


@pytest.mark.parametrize("version", VERSIONS)
def test_figures_of_queries_that_run_stop_and_fail_equal_sparks_progress(
    version: str, place: Place, waymark: Waymark, monkeypatch: pytest.MonkeyPatch
) -> None:
    with foreign(place, version, SHAPES, *RUNNING, "failing", waymark=waymark.variables), waymark.polling():
        until(waymark, "a failure", lambda: place.reports("terminated"))
        until(waymark, "batches", lambda: all(len(place.reports(name=name)) >= BATCHES for name in RUNNING))
    queries = {each.name: each for each in place.queries()}
    assert queries.keys() == {*RUNNING, "failing"}
    assert {name for name, each in queries.items() if each.ended["exception"] is not None} == {"failing"}
    check(waymark, list(queries.values()), "shapes", {each.id: name for name, each in queries.items()})
    # The files do not show that a query was stopped, or has failed. After some silence, its status is not known.
    monkeypatch.setattr("checkpointing.watched.query.QUIET_MS", 1)
    with waymark.polling():
        until(waymark, "unknown", lambda: set(Run.objects.values_list("state", flat=True)) == {RunState.RECONCILING})


@pytest.mark.parametrize(("name", "version"), RUNNABLE)
def test_figures_of_sparks_examples_equal_sparks_progress(
    name: str, version: str, place: Place, waymark: Waymark
) -> None:
    program, arguments, codec = EXAMPLES[name]
    names = {"rolling.enabled": "true", "compress": "true", "compression.codec": codec} if codec else {}
    place.settings = {f"spark.eventLog.{name}": value for name, value in names.items()}
    with talker() as port:
        command = (example(version, name), "127.0.0.1", str(port), *arguments)
        with foreign(place, version, *command, waymark=waymark.variables), waymark.polling():
            until(waymark, "batches", lambda: len(place.reports()) >= BATCHES)
    (query,) = place.queries()
    (location,) = place.checkpoints.iterdir()
    check(waymark, [query], program, {query.id: location.name})


def check(waymark: Waymark, queries: Collection[Query], program: str, paths: dict[str, str]) -> None:
    """Check all queries of a program, which has ended, in each way and in several ways at the same time."""
    clusters = (waymark.agent, waymark.logs, waymark.directory)
    for several in (clusters, *combinations(clusters, 2)):
        waymark.sees_only(*several, forgets=len(several) == 2)
        names = sorted(f"{program}/{each.name}" for each in queries)
        assert sorted(Job.objects.values_list("name", flat=True)) == names
        assert Job.objects.values("cluster").distinct().count() == 1
        assert set(Run.objects.values_list("state", flat=True)) <= {RunState.FINISHED, RunState.FAILED}
        assert QuerySource.objects.filter(cluster__enabled=True).count() == len(several) * len(queries)
    for cluster in (waymark.agent, waymark.logs):
        waymark.sees_only(cluster)
        for query in queries:
            check_reported(query, cluster, program)
    waymark.sees_only(waymark.directory)
    for query in queries:
        check_files(query, waymark.directory, paths[query.id])
