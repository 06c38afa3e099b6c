from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from monitoring.models import Checkpoint, Engine, Job, StateRead, StateReadKind
from monitoring.reasons.state_reads import StateReadReason
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db

CONTENTS = {
    "keyed": [
        {
            "query": "flights",
            "number": 0,
            "vertex_id": "v",
            "name": "aggregate <b>",
            "views": [{"name": "total", "kind": "value", "has_ttl": True}, {"name": "timers", "kind": "timers"}],
            "partitions": [{"index": n, "files": 1, "bytes": 1000 if n else 9000, "rows": None} for n in range(4)],
        }
    ],
    "operator_state": [],
}


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    make.make_checkpoints(make.make_run(job, now), now, make.Shape(count=3, savepoints=frozenset({1})))
    return job


@pytest.fixture
def snapshot(job: Job) -> Checkpoint:
    return Checkpoint.objects.select_related("run").get(run__job=job, checkpoint_id=3)


def answered(job: Job, snapshot: Checkpoint, now: datetime, **fields: Any) -> StateRead:
    base = {"kind": "list", "state": "done", "answer": CONTENTS, "asked_by": "olga", "label": "checkpoint 3 of run 1"}
    times = {"asked_at": now, "started_at": now, "ended_at": now + timedelta(seconds=2)}
    place = {"job": job, "snapshot": snapshot.pk, "location": snapshot.external_path}
    return StateRead.objects.create(**place, **times, **{**base, **fields})


def page(client: Client, job: Job, snapshot: Checkpoint | None = None) -> str:
    asked = {"snapshot": str(snapshot.pk)} if snapshot else {}
    return client.get(reverse("job-state", args=[job.pk]), asked).content.decode()


def post(client: Client, job: Job, **data: Any) -> Any:
    return client.post(reverse("job-state-ask", args=[job.pk]), data)


def test_listing_the_state_of_a_snapshot_stores_a_request(operator: Client, job: Job, snapshot: Checkpoint) -> None:
    answer = post(operator, job, kind="list", snapshot=snapshot.pk)
    assert answer.headers["Location"] == f"{reverse('job-state', args=[job.pk])}?snapshot={snapshot.pk}"
    read = StateRead.objects.get()
    assert (read.kind, read.location, read.asked_by) == ("list", snapshot.external_path, "olga")
    text = page(operator, job, snapshot)
    assert "Waiting for a worker" in text
    assert 'hx-trigger="fast-tick' in text
    assert "until=contents" in text


def test_the_page_reloads_with_a_form_when_the_contents_are_known(
    operator: Client, job: Job, snapshot: Checkpoint, now: datetime
) -> None:
    answered(job, snapshot, now)
    asked = {"snapshot": snapshot.pk, "until": "contents"}
    live = operator.get(reverse("job-state", args=[job.pk]), asked, headers={"HX-Target": "state-live"})
    assert live.headers["HX-Refresh"] == "true"
    text = page(operator, job, snapshot)
    assert "aggregate &lt;b&gt; · total (value)" in text
    assert "Skewed: partition 0 is 3.00 times the mean." in text
    assert 'hx-trigger="fast-tick' not in text


def test_a_key_is_searched_by_field_and_by_part(
    operator: Client, job: Job, snapshot: Checkpoint, now: datetime
) -> None:
    answered(job, snapshot, now)
    asked = {"place": "0:total", "key_field": "route", "key_text": "EWR-<b>", "contains": "", "most": "20"}
    assert post(operator, job, kind="read", snapshot=snapshot.pk, **asked).status_code == 302
    read = StateRead.objects.get(kind="read")
    assert (read.query, read.operator, read.view, read.key_field, read.most) == ("flights", 0, "total", "route", 20)
    rows = [{"partition": 2, "key": {"route": "EWR-<b>"}, "map_key": None, "value": 7, "expires_at": 1795233508481}]
    StateRead.objects.filter(pk=read.pk).update(
        state="done", answer={"rows": rows, "is_truncated": True}, started_at=now, ended_at=now
    )
    text = page(operator, job, snapshot)
    assert "{&quot;route&quot;: &quot;EWR-&lt;b&gt;&quot;}" in text
    assert "More than 20 rows match" in text


def test_a_difference_names_both_snapshots(operator: Client, job: Job, snapshot: Checkpoint, now: datetime) -> None:
    answered(job, snapshot, now)
    other = Checkpoint.objects.get(run__job=job, checkpoint_id=2)
    assert post(operator, job, kind="diff", snapshot=snapshot.pk, place="0:total", other=other.pk).status_code == 302
    read = StateRead.objects.get(kind="diff")
    assert (read.other_location, read.other_label) == (other.external_path, "savepoint 2 of run 1")
    assert read.other_label_value == StateReadReason.SAVEPOINT(number=2, run=1)
    sample = [{"change": "changed", "key": {"r": "a"}, "map_key": None, "before": 1, "after": 2}]
    counts = {"added": 0, "removed": 1, "changed": 1, "unchanged": 1200}
    StateRead.objects.filter(pk=read.pk).update(
        state="done", answer=counts | {"sample": sample}, started_at=now, ended_at=now
    )
    text = page(operator, job, snapshot)
    assert "from checkpoint 3 of run 1 to savepoint 2 of run 1" in text
    assert "1,200 unchanged" in text


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"place": "7:x"}, "This snapshot has no such state."),
        ({"key_text": "a"}, "Enter the key field"),
        ({"partition": "-1"}, "Partition numbers start at 0."),
        ({"most": "100000"}, "Enter a number from 1 to 500."),
        ({"kind": "diff"}, "Select the snapshot to compare with."),
        ({"other": "999999"}, "Select a valid choice"),
    ],
)
def test_an_invalid_query_is_reported_at_its_field_and_not_stored(
    operator: Client, job: Job, snapshot: Checkpoint, now: datetime, wrong: dict[str, str], expected: str
) -> None:
    answered(job, snapshot, now)
    answer = post(operator, job, **{"kind": "read", "snapshot": snapshot.pk, "place": "0:total", **wrong})
    assert answer.status_code == 422
    assert expected in answer.content.decode()
    assert not StateRead.objects.exclude(kind=StateReadKind.LIST).exists()


def test_only_snapshots_of_the_job_can_be_read(operator: Client, job: Job, now: datetime) -> None:
    foreign = make.make_run(make.make_job(job.cluster, "other"), now)
    (other,) = make.make_checkpoints(foreign, now, make.Shape(count=1))
    for nasty in ("/etc", "../..", str(other.pk), "9" * 40, ""):
        post(operator, job, kind="list", snapshot=nasty, location="/etc", path="/etc")
    assert not StateRead.objects.exists()


def test_a_viewer_sees_sizes_and_no_values(viewer: Client, job: Job, snapshot: Checkpoint, now: datetime) -> None:
    states = [{"name": "accounts", "mode": "split", "elements": [["iban-canary"]]}]
    holder = {"query": "flights", "holder": "writer", "parallelism": 1, "states": states}
    answered(job, snapshot, now, answer=CONTENTS | {"operator_state": [holder]})
    rows = [{"partition": 2, "key": {"card": "card-canary"}, "map_key": None, "value": 7, "expires_at": None}]
    answered(job, snapshot, now, kind="read", answer={"rows": rows, "is_truncated": False})
    assert post(viewer, job, kind="list", snapshot=snapshot.pk).status_code == 403
    text = page(viewer, job, snapshot)
    assert "Skewed: partition 0" in text
    assert ("accounts" in text, "visible to operators only" in text) == (True, True)
    assert "canary" not in text


def test_the_page_of_a_flink_job_names_an_alternative(viewer: Client, job: Job) -> None:
    job.cluster.engine = Engine.FLINK
    job.cluster.save()
    assert "State Processor API" in page(viewer, job)


def test_more_results_need_no_more_queries(operator: Client, job: Job, snapshot: Checkpoint, now: datetime) -> None:
    answered(job, snapshot, now)
    page(operator, job, snapshot)
    with CaptureQueriesContext(connection) as few:
        page(operator, job, snapshot)
    for _ in range(30):
        answered(job, snapshot, now, kind="sizes", answer={"partitions": CONTENTS["keyed"][0]["partitions"]})
    with CaptureQueriesContext(connection) as many:
        page(operator, job, snapshot)
    assert len(many) == len(few)
