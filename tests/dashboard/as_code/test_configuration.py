"""The whole configuration as YAML: clusters, defaults, jobs and grants, with rules and channels that refer to them."""

from __future__ import annotations

from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from dashboard.access.roles import Role
from dashboard.as_code.applying import NotApplied, apply
from dashboard.as_code.drift import drifts
from dashboard.as_code.export import export
from dashboard.as_code.plan import plan
from monitoring.engine import registration
from monitoring.job_defaults import OWN, apply_defaults
from monitoring.models import AlertRule, AuditEntry, Channel, Cluster, Grant, Job, JobDefault
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db

ALL = """\
clusters:
  - name: east
    rest_url: http://east.example:8081
    poll_interval: 5
    labels:
      env: prod
defaults:
  - labels: env=prod
    auto_restart: true
    savepoint_schedule: 6 h
    savepoint_quiet: 22:00-06:00
    savepoint_time_zone: Europe/Berlin
    savepoints_kept_for: 7 d
jobs:
  - cluster: east
    name: flights
    labels:
      team: payments
    max_restarts_per_hour: 3
    savepoints_kept: 5
channels:
  - name: payments
    kind: mail
    to: payments@example.org
rules:
  - cluster: east
    job: flights
    kind: failed_in_window
    threshold: 5
    channels: [payments]
grants:
  - user: vera
    role: operator
    cluster: east
  - user: vera
    role: viewer
    labels: team=payments
"""


@pytest.fixture
def vera(db: None) -> User:
    return User.objects.create_user("vera")


def act(text: str, now: datetime, *, role: Role = Role.ADMIN, prune: bool = False) -> list[str]:
    return [f"{change.verb} {change.what}" for change in apply(text, role, "olga", now, prune=prune)]


def what(text: str, role: Role = Role.ADMIN) -> dict[str, dict[str, tuple[Any, Any]]]:
    made = plan(text, role)
    assert made.problems == []
    return {change.what: change.fields for change in made.changes}


def state() -> list[list[dict[str, Any]]]:
    """Return all that is configured, without keys and times."""
    left_out = ("id", "created_at", "next_check_at", "last_checked_at", "evaluated_until", "next_savepoint_at")
    kinds = (Cluster, JobDefault, Job, Channel, AlertRule, Grant)
    named = [[field.name for field in kind._meta.fields if field.name not in left_out] for kind in kinds]
    return [
        [{name: str(getattr(row, name)) for name in names} for row in kind.objects.order_by("pk")]
        for kind, names in zip(kinds, named, strict=True)
    ]


def clear() -> None:
    for kind in (Grant, AlertRule, Channel, Job, JobDefault, Cluster):
        kind.objects.all().delete()


@pytest.mark.usefixtures("vera")
def test_after_a_text_is_applied_its_plan_is_empty(now: datetime) -> None:
    assert act(ALL, now) == [
        "add cluster east",
        "add default env=prod",
        "add job flights of cluster east",
        "add channel payments",
        "add rule failed_in_window (warning) of job flights of cluster east",
        "add grant of vera on cluster east",
        "add grant of vera on jobs with team=payments",
    ]
    assert what(ALL) == {}
    assert act(ALL, now) == []
    job = Job.objects.get()
    assert (job.cluster.name, job.labels, job.max_restarts_per_hour) == ("east", {"team": "payments"}, 3)
    assert (job.auto_restart, job.savepoint_interval_s, job.savepoint_quiet) == (True, 21_600, "22:00-06:00")
    assert (job.savepoint_time_zone, job.savepoints_kept, job.savepoints_kept_s) == ("Europe/Berlin", 5, 604_800)
    assert job.next_savepoint_at is not None
    assert job.rules.get().channels.get().name == "payments"


@pytest.mark.usefixtures("vera")
def test_an_export_gives_an_empty_installation_the_same_state(now: datetime) -> None:
    act(ALL, now)
    Job.objects.create(
        cluster=Cluster.objects.get(), name="own", savepoint_cron="0 3 * * *", final_savepoints_kept=None
    )
    apply_defaults("waymark", now)
    text, before = export(Role.ADMIN), state()
    assert what(text) == {}
    clear()
    act(text, now)
    assert export(Role.ADMIN) == text
    assert what(text) == {}
    after = state()
    for rows in (*before, *after):
        for row in rows:
            row.pop("settings_from", None)  # unmarked settings that are not blank are marked as own
    assert after == before


@pytest.mark.usefixtures("vera")
@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("env: prod", "env: 'p r'", "line 5: labels is \"{'env': 'p r'}\": 'env=p r' is not a label."),
        ("http://east", "ftp://east", "line 3: rest_url is 'ftp://east.example:8081': "),
        (
            "poll_interval: 5",
            "poll_interval: soon",
            "line 4: poll_interval is 'soon': Enter a number of seconds from 1",
        ),
        ("poll_interval: 5", "token: abc", "line 4: token is 'abc': no such key: allowed are authentication"),
        ("poll_interval: 5", "authentication: bearer", "line 2: token_from: Enter a token."),
        ("poll_interval: 5", "token_from: x", "line 4: token_from is 'x': set WAYMARK_CODE_SECRETS to a directory"),
        ("- labels: env=prod", "- labels: env==prod", "line 8: labels is 'env==prod': "),
        ("22:00-06:00", "at night", "line 11: savepoint_quiet is 'at night': Hours such as 22:00-06:00 are needed"),
        ("6 h", "6", "line 10: savepoint_schedule is '6': Enter a number and a unit"),
        ("- labels: env=prod", "- labels: env=prod\n    priority: -1", "line 9: priority is '-1': a whole number fr"),
        ("name: flights", "name: ''", "line 16: name is empty: a name of 1 to 500 characters is needed."),
        (
            "cluster: east\n    name",
            "cluster: west\n    name",
            "line 15: cluster is 'west': there is no such cluster: a",
        ),
        (
            "max_restarts_per_hour: 3",
            "max_restarts_per_hour: 99",
            "line 19: max_restarts_per_hour is '99': At most 60.",
        ),
        ("max_restarts_per_hour: 3", "max_restart: 3", "line 19: max_restart is '3': no such key: allowed are allow_e"),
        ("savepoints_kept: 5", "savepoints_kept: 0", "line 20: savepoints_kept is '0': Enter at least 1"),
        ("job: flights", "job: trains", "line 27: job is 'trains of cluster east': there is no such job."),
        ("role: operator", "role: king", "line 33: role is 'king': Select a valid choice."),
        (
            "- user: vera\n    role: operator",
            "- user: vic\n    role: operator",
            "line 32: user is 'vic': no active acc",
        ),
        ("labels: team=payments", "labels: team==", "line 37: labels is 'team==': "),
        ("labels: team=payments", "cluster: east", "line 35: grant of vera on cluster east occurs twice, first in l"),
    ],
)
def test_a_text_with_a_problem_is_not_applied_and_the_problem_is_named(
    now: datetime, old: str, new: str, shown: str
) -> None:
    wrong = ALL.replace(old, new)
    assert wrong != ALL
    with pytest.raises(NotApplied) as refused:
        apply(wrong, Role.ADMIN, "olga", now)
    assert any(str(each).startswith(shown) for each in refused.value.plan.problems), str(refused.value)
    assert [rows for rows in state() if rows] == []
    assert not AuditEntry.objects.exists()


@pytest.mark.usefixtures("vera")
def test_every_change_is_in_the_audit_log_with_its_actor(now: datetime) -> None:
    act(ALL, now)
    assert set(AuditEntry.objects.values_list("actor", flat=True)) == {"olga"}
    actions = set(AuditEntry.objects.values_list("action", flat=True))
    expected = {"cluster.add", "default.add", "job.add", "job.automation", "savepoint.retention", "user.grant"}
    assert expected <= actions
    assert "applied" not in actions
    changed = ALL.replace("savepoints_kept: 5", "savepoints_kept: 6").replace("poll_interval: 5", "poll_interval: 6")
    assert act(changed, now) == ["change cluster east", "change job flights of cluster east"]
    assert AuditEntry.objects.filter(action="cluster.change").get().details["now"] == {"poll_interval_s": 6.0}
    assert AuditEntry.objects.filter(action="savepoint.retention").first().details["now"] == {"savepoints_kept": 6}  # type: ignore[union-attr]


def test_an_operator_changes_no_clusters_and_grants(now: datetime) -> None:
    made = plan(ALL, Role.OPERATOR)
    assert [str(problem) for problem in made.problems][:1] == [
        "line 2: clusters: only an administrator can change these."
    ]
    with pytest.raises(NotApplied):
        apply(ALL, Role.OPERATOR, "olga", now)
    registration.add(Cluster(name="east", rest_url="http://east.example:8081"), "ada")
    assert "clusters:" not in export(Role.OPERATOR)
    assert "grants:" not in export(Role.VIEWER)
    text = "jobs:" + ALL.partition("jobs:")[2].partition("grants:")[0]
    act(text, now, role=Role.OPERATOR)
    assert Job.objects.get().savepoints_kept == 5


def test_the_page_applies_the_rights_of_its_reader(operator: Client) -> None:
    page = operator.post(reverse("as-code"), {"text": ALL, "step": "apply"})
    assert page.status_code == 422
    assert "clusters: only an administrator can change these." in page.content.decode()
    assert not Cluster.objects.exists()


def test_absent_sections_change_nothing(now: datetime) -> None:
    make.make_job(make.make_cluster(now, "east"), "flights")
    AlertRule.objects.create(name="wide", kind="failed_in_window", threshold=2, window_s=600)
    assert act("channels: []\n", now, prune=True) == []
    assert Cluster.objects.count() == AlertRule.objects.count() == 1


def test_prune_removes_clusters_and_resets_jobs(now: datetime) -> None:
    old = make.make_cluster(now, "old")
    job = make.make_job(old, "flights", labels={"a": "b"})
    make.make_cluster(now, registration.EMBEDDED)
    text = "clusters:\n  - name: new\n    rest_url: http://new.example:8081\n"
    assert act(text, now) == ["add cluster new"]
    assert act(text, now, prune=True) == ["remove cluster old"]
    old.refresh_from_db()
    assert old.archived_at is not None
    assert Cluster.objects.get(name=registration.EMBEDDED).archived_at is None
    again = text + "  - name: old\n    rest_url: http://old.example:8081\n"
    assert act(again, now) == ["add cluster old"]
    old.refresh_from_db()
    assert (old.archived_at, old.enabled) == (None, True)
    assert act("jobs: []\n", now, prune=True) == ["remove the settings of job flights of cluster old"]
    job.refresh_from_db()
    assert (job.auto_restart, job.savepoint_interval_s, job.labels) == (False, None, {})
    assert act("jobs: []\n", now, prune=True) == []


def test_a_directory_for_savepoints_of_watched_queries_is_configuration(now: datetime, settings: Settings) -> None:
    settings.STATE_ROOTS = ("/data",)
    text = "clusters:\n  - name: lake\n    discovery: directory\n    rest_url: /data/lake\n"
    act(text, now)
    assert "savepoint_target" not in export(Role.ADMIN)
    saved = f"{text}    savepoint_target: /data/savepoints\n"
    assert what(saved) == {"cluster lake": {"savepoint_target": ("", "/data/savepoints")}}
    act(saved, now)
    assert Cluster.objects.get().savepoint_target == "/data/savepoints"
    assert what(export(Role.ADMIN)) == {}
    [problem] = plan(saved.replace("/data/savepoints", "/data/lake/savepoints"), Role.ADMIN).problems
    assert "is in the watched directory" in str(problem)


def test_secrets_are_kept_or_read_from_a_named_file(now: datetime, tmp_path: Path, settings: Settings) -> None:
    settings.CODE_SECRETS = str(tmp_path)
    (tmp_path / "east-token").write_text("abc123\n")
    text = (
        "clusters:\n  - name: east\n    rest_url: https://east.example\n"
        "    authentication: bearer\n    token_from: east-token\n"
    )
    act(text, now)
    assert Cluster.objects.get().token.reveal() == "abc123"
    assert what(text) == {}
    shown = export(Role.ADMIN)
    assert "abc123" not in shown
    assert "token" not in shown
    assert what(shown) == {}
    (tmp_path / "east-token").write_text("other")
    assert what(text) == {"cluster east": {"token_from": ("another value", "east-token")}}
    act(text, now)
    assert Cluster.objects.get().token.reveal() == "other"
    assert "abc123" not in str([entry.details for entry in AuditEntry.objects.all()])
    for bad in ("../east-token", "missing", ".hidden"):
        assert plan(text.replace("east-token", bad), Role.ADMIN).problems


def test_defaults_apply_to_jobs_without_an_entry_or_a_changed_setting(operator: Client, now: datetime) -> None:
    cluster = make.make_cluster(now, "east", labels={"env": "prod"})
    free = Job.objects.create(cluster=cluster, name="free")
    own = Job.objects.create(cluster=cluster, name="own", savepoint_interval_s=600, labels={"env": "dev"})
    text = "defaults:\n  - labels: env=prod\n    savepoint_schedule: 6 h\n    auto_restart: true\n"
    assert what(text)["job free of cluster east"] == {
        "auto_restart": ("False (default)", "True (default)"),
        "savepoint_schedule": ("– (default)", "6 h (default)"),
    }
    act(text, now)
    assert what(text) == {}
    shown = operator.get(reverse("job-configuration", args=[free.pk])).content.decode()
    assert "From the default settings for jobs with these labels: " in shown
    free.refresh_from_db()
    own.refresh_from_db()
    assert (free.savepoint_interval_s, free.auto_restart) == (21_600, True)
    assert (own.savepoint_interval_s, own.auto_restart) == (600, False)
    later = Job.objects.create(cluster=cluster, name="later")
    assert apply_defaults("waymark", now) == 1
    later.refresh_from_db()
    assert (later.savepoint_interval_s, later.next_savepoint_at is not None) == (21_600, True)
    act(text.replace("6 h", "12 h"), now)
    later.refresh_from_db()
    assert later.savepoint_interval_s == 43_200
    act("defaults: []\n", now, prune=True)
    free.refresh_from_db()
    assert (free.savepoint_interval_s, free.auto_restart, free.settings_from) == (None, False, {})


def test_a_setting_that_a_person_changed_is_no_longer_a_default(operator: Client, now: datetime) -> None:
    job = Job.objects.create(cluster=make.make_cluster(now, "east"), name="free", labels={"env": "prod"})
    act("defaults:\n  - labels: env=prod\n    auto_restart: true\n    savepoints_kept: 4\n", now)
    typed = {"restore_from": "newest", "max_restarts_per_hour": 6, "max_restarts_per_day": 24}
    answer = operator.post(
        reverse("job-automation", args=[job.pk]), typed | {"labels": "env=prod", "restart_on_lost": "on"}
    )
    assert answer.status_code == 302
    apply_defaults("waymark", now)
    job.refresh_from_db()
    assert (job.auto_restart, job.savepoints_kept) == (False, 4)
    assert job.settings_from["auto_restart"] == OWN
    assert "auto_restart: false" in export(Role.ADMIN)


def test_an_entry_overrides_a_default_and_returns_to_it(now: datetime) -> None:
    make.make_cluster(now, "east")
    defaults = "defaults:\n  - labels: cluster=east\n    savepoint_schedule: 6 h\n"
    job = "jobs:\n  - cluster: east\n    name: flights\n"
    act(f"{defaults}{job}    savepoint_schedule: null\n", now)
    assert Job.objects.get().savepoint_interval_s is None
    assert what(f"{defaults}{job}    savepoint_schedule: null\n") == {}
    assert what(defaults + job) == {"job flights of cluster east": {"savepoint_schedule": ("", "6 h (default)")}}
    act(defaults + job, now)
    assert Job.objects.get().savepoint_interval_s == 21_600


def test_the_default_with_the_higher_priority_wins(now: datetime) -> None:
    job = Job.objects.create(cluster=make.make_cluster(now, "east"), name="free", labels={"env": "prod"})
    text = (
        "defaults:\n  - labels: cluster=east\n    priority: 5\n    savepoints_kept: 3\n"
        "  - labels: env=prod\n    savepoints_kept: 9\n    auto_restart: true\n"
    )
    act(text, now)
    job.refresh_from_db()
    assert (job.savepoints_kept, job.auto_restart) == (3, True)
    assert export(Role.ADMIN).count("priority: 5") == 1


def test_drift_names_what_changed_since_the_text_was_applied(operator: Client, now: datetime) -> None:
    registration.add(Cluster(name="east", rest_url="http://east.example:8081"), "ada")
    act("jobs:\n  - cluster: east\n    name: flights\n    savepoints_kept: 5\n", now)
    assert [drift.plan.changes for drift in drifts(Role.OPERATOR)] == [[]]
    Job.objects.update(savepoints_kept=7)
    (drift,) = drifts(Role.OPERATOR)
    assert drift.plan.changes[0].fields == {"savepoints_kept": (7, 5)}
    page = operator.get(reverse("as-code")).content.decode()
    assert "applied by olga" in page
    assert "7 → 5" in page
    with pytest.raises(SystemExit):
        call_command("config", "drift", stdout=(printed := StringIO()))
    assert "~ job flights of cluster east\n    savepoints_kept: 7 → 5\n" in printed.getvalue()
    Job.objects.update(savepoints_kept=5)
    make.make_job(Cluster.objects.get(), "added since")
    call_command("config", "drift", stdout=(printed := StringIO()))
    assert "No drift.\nNot in the YAML: the settings of job added since of cluster east\n" in printed.getvalue()


def test_a_plan_writes_nothing(now: datetime, vera: User) -> None:
    cluster = make.make_cluster(now, "east", poll_interval_s=9, labels={"x": "y"})
    make.make_job(cluster, "flights")
    before = state()
    assert what(ALL)
    assert state() == before
