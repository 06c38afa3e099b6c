"""The pages pin, retain and delete savepoints."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from monitoring.models import Account, AuditEntry, Grant, Job, Savepoint, SavepointOrigin, SavepointState
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now)
    for hours in range(1, 5):
        make.make_savepoint(run, now - timedelta(hours=hours), path=f"file:/data/savepoint-{hours}")
    return job


@pytest.fixture
def oldest(job: Job) -> Savepoint:
    return job.savepoints.get(path="file:/data/savepoint-4")


def test_a_savepoint_is_pinned_and_noted(operator: Client, oldest: Savepoint) -> None:
    typed = {"pinned": "on", "note": "Before the migration."}
    operator.post(reverse("savepoint-keep", args=[oldest.pk]), typed)
    oldest.refresh_from_db()
    assert (oldest.pinned, oldest.note) == (True, "Before the migration.")
    entry = AuditEntry.objects.get(action="savepoint.keep")
    assert entry.details["was"] == {"pinned": False, "note": ""}
    page = operator.get(reverse("savepoint", args=[oldest.pk])).content.decode()
    assert "The savepoint is kept: pinned." in page
    assert "Delete files" not in page


def test_a_note_that_is_too_long_keeps_what_was_typed(operator: Client, oldest: Savepoint) -> None:
    response = operator.post(reverse("savepoint-keep", args=[oldest.pk]), {"note": "x" * 2001})
    assert response.status_code == 422
    assert "at most 2000" in str(response.context["form"].errors["note"])
    assert "x" * 2001 in response.content.decode()
    oldest.refresh_from_db()
    assert oldest.note == ""


def test_deleting_a_savepoint_is_audited_with_its_reason(operator: Client, oldest: Savepoint) -> None:
    operator.post(reverse("savepoint-dispose", args=[oldest.pk]), {"note": "disk is full"})
    oldest.refresh_from_db()
    assert (oldest.state, oldest.disposal_reason) == (SavepointState.DISPOSING, "disk is full")
    assert AuditEntry.objects.get(action="savepoint.dispose").actor == "olga"


def test_the_newest_usable_savepoint_cannot_be_deleted(operator: Client, job: Job) -> None:
    newest = job.savepoints.get(path="file:/data/savepoint-1")
    response = operator.post(reverse("savepoint-dispose", args=[newest.pk]), follow=True)
    assert "The savepoint is kept: the newest usable one." in response.content.decode()
    newest.refresh_from_db()
    assert newest.state == SavepointState.COMPLETED


def test_the_preview_counts_savepoints_to_delete_and_changes_nothing(operator: Client, job: Job) -> None:
    asked = {"preview": "1", "savepoints_kept": "1", "savepoints_kept_s": "150 min"}
    response = operator.get(reverse("job-retention", args=[job.pk]), asked)
    assert response.context["going"] == 2
    assert [verdict.is_expired for _, verdict in response.context["judged"]] == [False, False, True, True]
    job.refresh_from_db()
    assert (job.savepoints_kept, job.savepoints_kept_s) == (None, None)
    assert not Savepoint.objects.filter(state=SavepointState.DISPOSING).exists()


def _retention(final: str) -> dict[str, str]:
    return {"savepoints_kept": "2", "savepoints_kept_s": "7 d", "final_savepoints_kept": final}


def test_the_retention_is_saved_and_audited(operator: Client, job: Job) -> None:
    operator.post(reverse("job-change-retention", args=[job.pk]), _retention("5"))
    job.refresh_from_db()
    assert (job.savepoints_kept, job.savepoints_kept_s, job.final_savepoints_kept) == (2, 7 * 86_400, 5)
    details = AuditEntry.objects.get(action="savepoint.retention").details
    assert details["now"] == {"savepoints_kept": 2, "savepoints_kept_s": 604_800, "final_savepoints_kept": 5}
    page = operator.get(reverse("job-savepoints", args=[job.pk])).content.decode()
    assert "keeps the newest 2 and those of the last 7 d" in page


@pytest.mark.parametrize(
    ("field", "typed", "expected"),
    [
        ("savepoints_kept", "0", "Enter at least 1"),
        ("savepoints_kept", "many", "Enter a whole number"),
        ("final_savepoints_kept", "0", "Enter at least 1"),
        ("savepoints_kept_s", "5 min", "is not allowed"),
        ("savepoints_kept_s", "long", "Enter a number and a unit"),
    ],
)
def test_an_invalid_retention_is_reported_at_its_field_and_changes_nothing(
    operator: Client, job: Job, field: str, typed: str, expected: str
) -> None:
    for send in (operator.post, operator.get):
        name = "job-change-retention" if send == operator.post else "job-retention"
        response = send(reverse(name, args=[job.pk]), {"preview": "1", field: typed})
        assert expected in str(response.context["form"].errors[field])
    job.refresh_from_db()
    assert (job.savepoints_kept, job.savepoints_kept_s) == (None, None)


def test_viewer_sees_the_page_and_cannot_act(viewer: Client, job: Job, oldest: Savepoint) -> None:
    assert viewer.get(reverse("savepoint", args=[oldest.pk])).status_code == 200
    assert viewer.get(reverse("job-retention", args=[job.pk])).status_code == 200
    for name, key in (
        ("savepoint-keep", oldest.pk),
        ("savepoint-dispose", oldest.pk),
        ("job-change-retention", job.pk),
    ):
        assert viewer.post(reverse(name, args=[key])).status_code == 403


def test_markup_in_a_note_is_shown_not_run(operator: Client, oldest: Savepoint) -> None:
    Savepoint.objects.filter(pk=oldest.pk).update(note="<script>alert(1)</script>", origin=SavepointOrigin.MANUAL)
    for path in (reverse("savepoint", args=[oldest.pk]), reverse("job-savepoints", args=[oldest.job_id])):
        assert "<script>alert" not in operator.get(path).content.decode()


def test_the_duration_of_a_savepoint_is_that_of_its_checkpoint(operator: Client, job: Job, oldest: Savepoint) -> None:
    """Until its checkpoint is known, the duration is the time until Waymark saw the completion."""
    page = reverse("savepoint", args=[oldest.pk])
    assert "<dt>Duration</dt><dd>2.4 s</dd>" in operator.get(page).content.decode()
    run = oldest.run
    make.make_checkpoints(run, oldest.requested_at, make.Shape(count=1))
    checkpoint = run.checkpoints.get()
    checkpoint.end_to_end_duration = 62
    checkpoint.save()
    Savepoint.objects.filter(pk=oldest.pk).update(checkpoint=checkpoint)
    assert "<dt>Duration</dt><dd>62 ms</dd>" in operator.get(page).content.decode()
    assert "62 ms" in operator.get(reverse("job-savepoints", args=[job.pk])).content.decode()


def test_the_page_lists_the_visible_runs_restored_from_the_savepoint(
    operator: Client, job: Job, oldest: Savepoint, now: datetime
) -> None:
    copy = make.make_job(job.cluster, name="flights-copy")
    run = make.make_run(copy, now)
    run.restored_path = "file:///data/savepoint-4"
    run.save()
    page = " ".join(operator.get(reverse("savepoint", args=[oldest.pk])).content.decode().split())
    assert f'<a href="{reverse("job", args=[copy.pk])}">run 1 of <bdi>flights-copy</bdi> (RUNNING)</a>' in page
    assert "The savepoint is kept: a run of another job was started from it." in page

    user = User.objects.create_user("gwen", password="pw-gwen-1", is_staff=True)
    Account.objects.update_or_create(user=user, defaults={"granted_only": True})
    Grant.objects.create(user=user, role="operator", selector="team=seen", created_at=now)
    Job.objects.filter(pk=job.pk).update(labels={"team": "seen"})
    narrow = Client()
    narrow.force_login(user)
    page = narrow.get(reverse("savepoint", args=[oldest.pk])).content.decode()
    assert "flights-copy" not in page
    assert "The savepoint is kept: a run of another job was started from it." in page


def test_a_savepoint_that_is_being_deleted_cannot_be_pinned(operator: Client, oldest: Savepoint) -> None:
    Savepoint.objects.filter(pk=oldest.pk).update(state=SavepointState.DISPOSING)
    response = operator.post(reverse("savepoint-keep", args=[oldest.pk]), {"pinned": "on", "note": ""})
    assert response.status_code == 422
    assert "The savepoint cannot be pinned: its files are deleted or are being deleted." in response.content.decode()
    oldest.refresh_from_db()
    assert not oldest.pinned
