"""A changed configuration adds a row for each changed key, without secrets."""

from __future__ import annotations

from django.db import connection
from django.test.utils import CaptureQueriesContext

from monitoring.models import ConfigurationChange, JobConfiguration
from monitoring.polling.recording import configuration
from tests.monitoring.polling.recording.conftest import checkpointing, execution, vertex


def changes():
    return [
        (change.part, change.key, change.kind, change.before, change.after)
        for change in ConfigurationChange.objects.order_by("id")
    ]


def test_the_first_configuration_is_not_a_change(rows, reported, now):
    run = rows.run(rows.job())
    configuration.record([reported(run, config=checkpointing(), vertices=(vertex("map", 2),))], now)
    assert changes() == []
    known = JobConfiguration.objects.get()
    assert known.parts == {
        "checkpointing": {"mode": "exactly_once", "interval": 10_000, "externalization.enabled": True},
        "operators": {"map": 2},
    }


def test_each_key_that_differs_is_a_row(rows, reported, now, later):
    job = rows.job()
    first = rows.run(job)
    configuration.record(
        [
            reported(
                first, config=checkpointing(), job_config=execution(), vertices=(vertex("map", 2), vertex("sink", 1))
            )
        ],
        now,
    )
    second = rows.run(job)
    changed = checkpointing(interval=30_000, externalization={"enabled": False})
    vertices = (vertex("map", 4), vertex("filter", 1))
    second_report = reported(second, config=changed, job_config=execution(user_config={"team": "x"}), vertices=vertices)
    configuration.record([second_report], later(60))
    assert changes() == [
        ("checkpointing", "externalization.enabled", "changed", True, False),
        ("checkpointing", "interval", "changed", 10_000, 30_000),
        ("execution", "team", "added", None, "x"),
        ("operators", "filter", "added", None, 1),
        ("operators", "map", "changed", 2, 4),
        ("operators", "sink", "removed", 1, None),
    ]
    assert {change.run for change in ConfigurationChange.objects.all()} == {second}
    assert JobConfiguration.objects.get().since == later(60)


def test_the_same_again_and_a_part_that_was_not_read_change_nothing(rows, reported, now, later):
    run = rows.run(rows.job())
    configuration.record([reported(run, config=checkpointing(), vertices=(vertex("map", 2),))], now)
    configuration.record([reported(run, config=checkpointing())], later(5))
    configuration.record([reported(run)], later(6))
    configuration.record([reported(run, vertices=(vertex("map", 2),))], later(7))
    assert changes() == []
    assert JobConfiguration.objects.get().since == now


def test_an_older_run_does_not_change_the_current_configuration(rows, reported, now, later):
    job = rows.job()
    old, current = rows.run(job), rows.run(job)
    configuration.record([reported(current, config=checkpointing())], now)
    observations = [reported(old, config=checkpointing(interval=5)), reported(current, config=checkpointing())]
    configuration.record(observations, later(5))
    assert changes() == []


def test_operators_with_the_same_name_are_distinguished(rows, reported, now, later):
    run = rows.run(rows.job())
    configuration.record([reported(run, vertices=(vertex("map", 1), vertex("map", 2)))], now)
    configuration.record([reported(run, vertices=(vertex("map", 1), vertex("map", 3)))], later(5))
    assert changes() == [("operators", "map #2", "changed", 2, 3)]


def test_a_secret_is_seen_to_change_and_not_seen(rows, reported, now, later):
    run = rows.run(rows.job())
    launch = {"entry_class": "a.py:b", "configuration": {"spark.db.password": "hunter2"}}
    configuration.record([reported(run, job_config=execution(launch=launch, user_config={"api-key": "k1"}))], now)
    launch = {"entry_class": "a.py:b", "configuration": {"spark.db.password": "hunter3"}}
    configuration.record([reported(run, job_config=execution(launch=launch, user_config={"api-key": "k1"}))], later(5))
    [(_, key, kind, before, after)] = changes()
    assert (key, kind, before != after) == ("spark.db.password", "changed", True)
    stored = f"{changes()} {JobConfiguration.objects.get().parts}"
    assert "hunter" not in stored
    assert "k1" not in stored
    assert before.startswith("hidden")


def test_any_number_of_jobs_is_three_statements(rows, reported, now, later):
    runs = [rows.run(rows.job()) for _ in range(10)]
    configuration.record([reported(run, config=checkpointing()) for run in runs], now)
    with CaptureQueriesContext(connection) as asked:
        configuration.record([reported(run, config=checkpointing(interval=1)) for run in runs], later(5))
    assert [query["sql"].split()[0] for query in asked] == ["SELECT", "INSERT", "INSERT"]
    assert JobConfiguration.objects.count() == 10
