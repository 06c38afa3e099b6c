"""The inventory file adds, changes and removes the clusters that it names, and nothing else."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from dashboard.access.roles import Role
from dashboard.as_code.drift import drifts
from dashboard.as_code.inventory import apply_inventory
from monitoring.models import AppliedText, AuditEntry, Cluster
from monitoring.reasons.work import WorkReason
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
EAST = "  - name: east\n    rest_url: http://east.example:8081\n"
WEST = "  - name: west\n    rest_url: http://west.example:8081\n    labels: {env: prod}\n"


@pytest.fixture
def file(tmp_path: Path, settings: Settings) -> Path:
    settings.INVENTORY = str(tmp_path / "inventory.yaml")
    return tmp_path / "inventory.yaml"


def write(file: Path, text: str, at: datetime) -> None:
    file.write_text(text)
    os.utime(file, (at.timestamp(), at.timestamp()))


def names() -> set[str]:
    return set(Cluster.objects.filter(archived_at=None).values_list("name", flat=True))


def test_without_a_file_no_inventory_is_applied(now: datetime) -> None:
    assert apply_inventory(now) is None


def test_clusters_follow_the_file(file: Path, now: datetime) -> None:
    make.make_job(make.make_cluster(now, "by hand"), "flights")
    write(file, f"clusters:\n{EAST}{WEST}", now - timedelta(minutes=1))
    report = apply_inventory(now)
    assert report is not None
    assert report.done == (WorkReason.INVENTORY_APPLIED(count=2),)
    assert apply_inventory(now) is None
    west = Cluster.objects.get(name="west")
    assert west.labels == {"env": "prod"}
    make.make_job(west, "rides")

    write(file, f"clusters:\n{EAST.replace('8081', '8082')}", now - timedelta(seconds=30))
    apply_inventory(now)
    assert names() == {"by hand", "east"}
    west.refresh_from_db()
    assert west.archived_at is not None, "its history stays"
    assert Cluster.objects.get(name="east").rest_url == "http://east.example:8082"
    assert set(AuditEntry.objects.values_list("actor", flat=True)) == {"inventory"}

    write(file, f"clusters:\n{EAST}{WEST}", now - timedelta(seconds=20))
    apply_inventory(now)
    west.refresh_from_db()
    assert (west.archived_at, west.enabled) == (None, True)


def test_a_file_is_applied_only_after_it_stopped_changing(file: Path, now: datetime) -> None:
    write(file, f"clusters:\n{EAST}", now - timedelta(seconds=1))
    assert apply_inventory(now) is None
    assert not Cluster.objects.exists()
    apply_inventory(now + timedelta(seconds=5))
    assert names() == {"east"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "The file needs the section clusters."),
        ("clusters:\n  - name: east\n    rest_url: ftp://x\n", "line 3: rest_url is 'ftp://x': "),
        ("clusters:\n  - name: [", "line "),
        ("rules: []\n", "line 1: rules is not allowed here. Allowed are clusters."),
        (None, "Waymark cannot read the file: "),
    ],
)
def test_a_file_with_a_problem_is_not_applied_and_the_problem_is_shown(
    file: Path, now: datetime, admin_client: Client, text: str | None, problem: str
) -> None:
    write(file, f"clusters:\n{EAST}", now - timedelta(minutes=1))
    apply_inventory(now)
    if text is None:
        file.unlink()
    else:
        write(file, text, now - timedelta(seconds=30))
    report = apply_inventory(now)
    assert report is not None
    (reason,) = report.done
    assert reason.code is WorkReason.INVENTORY_NOT_APPLIED
    assert names() == {"east"}
    (shown,) = AppliedText.objects.get().problems
    assert shown.startswith(problem)
    page = admin_client.get(reverse("as-code")).content.decode()
    assert "The file has problems, so its last change is not applied:" in page
    write(file, f"clusters:\n{EAST}", now - timedelta(seconds=20))
    assert apply_inventory(now) is None
    assert AppliedText.objects.get().problems == []


def test_a_changed_secret_is_read_again(file: Path, now: datetime, tmp_path: Path, settings: Settings) -> None:
    settings.CODE_SECRETS = str(tmp_path / "secrets")
    (tmp_path / "secrets").mkdir()
    token = tmp_path / "secrets" / "east"
    write(token, "first", now - timedelta(minutes=2))
    protected = EAST.replace("http:", "https:") + "    authentication: bearer\n    token_from: east\n"
    write(file, f"clusters:\n{protected}", now - timedelta(minutes=1))
    apply_inventory(now)
    assert apply_inventory(now) is None
    write(token, "second", now + timedelta(seconds=10))
    apply_inventory(now + timedelta(seconds=20))
    assert Cluster.objects.get().token.reveal() == "second"


def test_drift_from_the_file_is_shown_to_administrators(file: Path, now: datetime) -> None:
    write(file, f"clusters:\n{EAST}", now - timedelta(minutes=1))
    apply_inventory(now)
    Cluster.objects.update(labels={"env": "prod"})
    (drift,) = drifts(Role.ADMIN)
    assert drift.plan.changes[0].fields == {"labels": ({"env": "prod"}, {})}
    assert drifts(Role.OPERATOR) == []
