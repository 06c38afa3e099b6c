"""Sources that find clusters are exported and imported as YAML, without their kubeconfig."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from dashboard.access.roles import Role
from dashboard.as_code.applying import apply
from dashboard.as_code.export import export
from dashboard.as_code.plan import plan
from monitoring.models import Cluster, DiscoverySource, FoundResource
from tests.dashboard import builders as make
from tests.monitoring.discovery.played_kubernetes import TOKEN, kubeconfig

pytestmark = pytest.mark.django_db
TEXT = """\
discoveries:
  - name: east
    namespaces: payments,orders
    label_selector: team=air
    kubeconfig_from: east-kubeconfig
"""


@pytest.fixture(autouse=True)
def secrets(tmp_path: Path, settings: object) -> Path:
    settings.CODE_SECRETS = str(tmp_path)
    (tmp_path / "east-kubeconfig").write_text(kubeconfig("https://10.0.0.1:6443"))
    return tmp_path


def test_export_and_import_round_trip(now: datetime) -> None:
    assert len(apply(TEXT, Role.ADMIN, "anna", now)) == 1
    source = DiscoverySource.objects.get()
    assert TOKEN in source.kubeconfig.reveal()
    text = export(Role.ADMIN)
    assert "  - name: east\n    namespaces: payments,orders\n    label_selector: team=air\n" in text
    assert TOKEN not in text
    assert plan(text, Role.ADMIN).changes == []
    assert plan(TEXT, Role.ADMIN).changes == []


def test_another_kubeconfig_is_a_change(now: datetime, secrets: Path) -> None:
    apply(TEXT, Role.ADMIN, "anna", now)
    (secrets / "east-kubeconfig").write_text(kubeconfig("https://10.0.0.2:6443"))
    (change,) = plan(TEXT, Role.ADMIN).changes
    assert change.fields == {"kubeconfig_from": ("another value", "east-kubeconfig")}


def test_problems_name_the_line(now: datetime, secrets: Path) -> None:
    (secrets / "east-kubeconfig").write_text(kubeconfig("https://10.0.0.1", exec="x"))
    [problem] = plan(TEXT, Role.ADMIN).problems
    assert "line 5" in str(problem)
    assert "user.exec" in str(problem)
    assert "no such key" in str(plan("discoveries:\n  - {name: a, kubeconfig: b}\n", Role.ADMIN).problems[0])


def test_found_clusters_are_neither_exported_nor_pruned(now: datetime) -> None:
    apply(TEXT, Role.ADMIN, "anna", now)
    cluster = make.make_cluster(now, "prod/orders")
    source = DiscoverySource.objects.get()
    FoundResource.objects.create(source=source, name="orders", cluster=cluster, found_at=now, changed_at=now)
    assert "prod/orders" not in export(Role.ADMIN)
    apply("clusters: []\n", Role.ADMIN, "anna", now, prune=True)
    assert Cluster.objects.get().archived_at is None
    apply("discoveries: []\n", Role.ADMIN, "anna", now, prune=True)
    assert not DiscoverySource.objects.exists()


YARN = """\
discoveries:
  - name: hadoop
    kind: yarn
    addresses: http://10.0.0.1:8088
    authentication: basic
    username: ann
    password_from: hadoop-password
    queues: root.prod
"""


def test_a_source_of_yarn_round_trips(now: datetime, secrets: Path) -> None:
    (secrets / "hadoop-password").write_text("the-password")
    assert len(apply(YARN, Role.ADMIN, "anna", now)) == 1
    assert DiscoverySource.objects.get().password.reveal() == "the-password"
    text = export(Role.ADMIN)
    assert "the-password" not in text
    assert "    kind: yarn\n" in text
    assert "address_pattern" not in text
    assert plan(text, Role.ADMIN).changes == []
    (secrets / "hadoop-password").write_text("another")
    (change,) = plan(YARN, Role.ADMIN).changes
    assert change.fields == {"password_from": ("another value", "hadoop-password")}
    [problem] = plan(YARN.replace("kind: yarn", "kind: kubernetes"), Role.ADMIN).problems
    assert "line 3" in str(problem)
