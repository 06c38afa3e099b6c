"""Which run of a job is its current one."""

from __future__ import annotations

from monitoring.models import Discovery, Run, RunState
from monitoring.polling.runs import Runs, _choose_current


def test_an_older_run_of_a_watched_query_that_is_found_later_does_not_become_the_current_one(rows) -> None:
    job = rows.job(rows.cluster(discovery=Discovery.EVENT_LOG))
    newer = rows.run(job, RunState.FINISHED, started_at=rows.ago(100))
    older = rows.run(job, RunState.FINISHED, started_at=rows.ago(5000), current=False)
    assert older.number > newer.number
    _choose_current(Runs([], regrouped={job.pk}))
    job.refresh_from_db()
    assert job.current_run == newer
    Run.objects.filter(pk=older.pk).update(state=RunState.RUNNING)
    _choose_current(Runs([], regrouped={job.pk}))
    job.refresh_from_db()
    assert job.current_run == older, "a live run comes first"


def test_a_clock_that_was_set_back_does_not_hide_the_newest_run(rows) -> None:
    job = rows.job()
    rows.run(job, RunState.FINISHED, started_at=rows.ago(100))
    newest = rows.run(job, RunState.FAILED, started_at=rows.ago(5000), current=False)
    _choose_current(Runs([], regrouped={job.pk}))
    job.refresh_from_db()
    assert job.current_run == newest
