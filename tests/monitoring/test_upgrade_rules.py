"""Rules of an installation from before they had kinds keep their meaning, what is open and what was dealt with."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

BEFORE = [("monitoring", "0008_poll_claims_and_rhythms")]
AFTER = [("monitoring", "0009_rules_of_every_kind")]
AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture
def migrate(transactional_db):
    def to(target):
        MigrationExecutor(connection).migrate(target)
        return MigrationExecutor(connection).loader.project_state(target).apps

    yield to
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())


@pytest.mark.nightly
def test_rules_are_the_jobs_own_and_what_they_found_stays_found(migrate):
    old = migrate(BEFORE)
    clusters, jobs, rules, incidents = (
        old.get_model("monitoring", name).objects for name in ("Cluster", "Job", "AlertRule", "Incident")
    )
    cluster = clusters.create(name="c", rest_url="http://127.0.0.1:1/")
    failing, mended = (jobs.create(cluster=cluster, name=name) for name in ("failing", "mended"))
    first = rules.create(job=failing, window_s=600, threshold=5, check_every_s=30, severity="critical", enabled=False)
    second = rules.create(job=mended, counts_since=AT)
    incidents.create(rule=first, job=failing, severity="critical", sentence="x", opened_at=AT)

    new = migrate(AFTER)

    kept = new.get_model("monitoring", "AlertRule").objects.get(pk=first.pk)
    assert (kept.job_id, kept.kind, kept.window_s, kept.threshold) == (failing.pk, "failed_in_window", 600, 5)
    assert (kept.check_every_s, kept.severity, kept.enabled, kept.selector) == (30, "critical", False, "")
    states = new.get_model("monitoring", "RuleState").objects
    assert (states.get(rule=first.pk).phase, states.get(rule=first.pk).opened_at) == ("open", AT)
    assert (states.get(rule=second.pk).phase, states.get(rule=second.pk).counts_since) == ("quiet", AT)
