from __future__ import annotations

import json

import pytest

from checkpointing.ha.errors import LeadershipLost
from checkpointing.ha.job_results import FileJobResultStore, JobResult, JobResultExists, JobResultMissing
from checkpointing.ids import new_id
from checkpointing.model.status import JobStatus


@pytest.fixture
def store(tmp_path):
    return FileJobResultStore(tmp_path / "job-result-store")


def result(status=JobStatus.FINISHED):
    return JobResult(new_id(), "wordcount", status, 1_800_000_000_000, 1_800_000_060_000)


def test_conformance_O02_a_result_is_dirty_then_clean(store, tmp_path):
    finished = result()
    store.create_dirty_result(finished)
    assert store.has_result(finished.job_id)
    assert not store.has_clean_result(finished.job_id)
    assert list(store.dirty_results()) == [finished]

    store.mark_as_clean(finished.job_id)
    assert store.has_clean_result(finished.job_id)
    assert list(store.dirty_results()) == []
    assert [file.name for file in (tmp_path / "job-result-store").iterdir()] == [f"{finished.job_id}.json"]


def test_conformance_O02_a_second_result_is_refused_dirty_or_clean(store):
    failed = result(JobStatus.FAILED)
    store.create_dirty_result(failed)
    with pytest.raises(JobResultExists):
        store.create_dirty_result(failed)
    store.mark_as_clean(failed.job_id)
    with pytest.raises(JobResultExists):
        store.create_dirty_result(failed)


def test_conformance_O02_cleaning_may_be_repeated_and_cleaning_an_unknown_one_is_an_error(store):
    finished = result()
    store.create_dirty_result(finished)
    store.mark_as_clean(finished.job_id)
    store.mark_as_clean(finished.job_id)
    with pytest.raises(JobResultMissing):
        store.mark_as_clean(new_id())


def test_conformance_O02_only_dirty_results_are_listed(store):
    clean, dirty = result(), result(JobStatus.CANCELED)
    for each in (clean, dirty):
        store.create_dirty_result(each)
    store.mark_as_clean(clean.job_id)
    assert list(store.dirty_results()) == [dirty]


def test_a_result_remains_after_its_store_is_closed(store, tmp_path):
    finished = result()
    store.create_dirty_result(finished)
    assert FileJobResultStore(tmp_path / "job-result-store").has_result(finished.job_id)


def test_nothing_is_known_before_the_first_result(store):
    assert list(store.dirty_results()) == []
    assert not store.has_result(new_id())


def test_a_job_that_may_be_recovered_has_no_result():
    with pytest.raises(ValueError, match="SUSPENDED"):
        result(JobStatus.SUSPENDED)


def test_a_damaged_result_is_named_in_the_log_and_keeps_the_others_from_nothing(store, tmp_path, caplog):
    damaged, whole = result(), result()
    for each in (damaged, whole):
        store.create_dirty_result(each)
    file = tmp_path / "job-result-store" / f"{damaged.job_id}_DIRTY.json"
    file.write_text(json.dumps({"version": 1}))
    assert store.dirty_results() == [whole]
    assert damaged.job_id in caplog.text
    assert store.has_result(damaged.job_id), "its job is over all the same"


def test_a_result_of_an_ended_term_is_not_written(store, tmp_path):
    def refuse():
        raise LeadershipLost("the term is over")

    finished = result()
    with pytest.raises(LeadershipLost):
        store.create_dirty_result(finished, refuse)
    assert not store.has_result(finished.job_id)
    assert list((tmp_path / "job-result-store").iterdir()) == []
