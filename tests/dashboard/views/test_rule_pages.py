"""The pages of rules: the list, a job's rules with their scopes, the form of each type, the backtest."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from monitoring.alerts.defaults import ensure_default_rules
from monitoring.alerts.kinds import kinds
from monitoring.models import AlertRule, AuditEntry, Cluster, Job, Outage, OutageKind
from tests.dashboard import builders as make

pytestmark = pytest.mark.django_db
COMMON = {
    "open_hold_s": "0 s",
    "close_hold_s": "0 s",
    "flap_opens": "4",
    "flap_window_s": "1 h",
    "check_every_s": "90 s",
    "severity": "critical",
    "enabled": "on",
}
GOOD = COMMON | {"threshold": "5", "window_s": "30 min"}
WIDE = GOOD | {"name": "Payments", "scope": "selector", "selector": "team=payments"}


@pytest.fixture
def job(now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    run = make.make_run(job, now)
    make.make_checkpoints(run, now - timedelta(minutes=2), make.Shape(count=60, failed=frozenset({3, 4, 5})), 5)
    return job


def test_a_rule_for_one_job_is_saved_audited_and_due_at_once(operator: Client, job: Job, now: datetime) -> None:
    channel = make.make_channel()
    address = reverse("rule-new", args=["failed_in_window"]) + f"?job={job.pk}"
    response = operator.post(address, GOOD | {"channels": [channel.pk]})
    assert response.status_code == 302
    rule = AlertRule.objects.get(job=job)
    assert (rule.threshold, rule.window_s, rule.check_every_s, rule.severity) == (5, 1800, 90, "critical")
    assert list(rule.channels.all()) == [channel]
    assert rule.next_check_at is not None
    assert rule.next_check_at >= now
    assert AuditEntry.objects.get(action="rule.change").actor == "olga"


def test_a_changed_rule_is_evaluated_from_the_beginning(operator: Client, job: Job) -> None:
    operator.post(reverse("rule-new", args=["failed_in_window"]), WIDE)
    rule = AlertRule.objects.get(name="Payments")
    AlertRule.objects.filter(pk=rule.pk).update(evaluated_until={"1": "2026-11-21T12:00:00+00:00"})
    operator.post(reverse("rule", args=[rule.pk]), WIDE | {"threshold": "7", "scope": "everything"})
    rule.refresh_from_db()
    assert (rule.threshold, rule.selector, rule.evaluated_until) == (7, "", {})


@pytest.mark.parametrize(
    ("kind", "field", "typed", "expected"),
    [
        ("failed_in_window", "threshold", "0", "Enter a whole number from 1 to 100000."),
        ("failed_in_window", "threshold", "many", "Enter a whole number from 1 to 100000."),
        ("failed_in_window", "threshold", "", "required"),
        ("failed_in_window", "threshold", "100001", "Enter a whole number from 1 to 100000."),
        ("failed_in_window", "window_s", "-5 min", "is not allowed: from 1 min to 30 d"),
        ("failed_in_window", "window_s", "9" * 400 + " d", "Enter a number and a unit"),
        ("failed_in_window", "window_s", "15", "Enter a number and a unit"),
        ("failed_in_window", "check_every_s", "1 s", "from 5 s to 1 d"),
        ("failed_in_window", "severity", "mild", "mild"),
        ("failed_in_window", "selector", "team==payments", "“team==payments” is not a term"),
        ("failed_in_window", "selector", "", "Enter terms like"),
        ("failed_in_window", "flap_opens", "-1", "At least 0"),
        ("failed_in_window", "open_hold_s", "2 d", "from 0 s to 1 d"),
        ("failed_in_total", "since", "yesterday", "valid date"),
        ("end_to_end_duration", "threshold", "5", "Enter a number and a unit (ms, s, min or h), from 1 ms to"),
        ("end_to_end_duration", "threshold", "0 ms", "0 ms is not allowed"),
        ("state_size", "threshold", "12 parsecs", "Enter a number and a unit (B, KB, MB, GB or TB), from 1 B to"),
        ("state_size", "threshold", "-1 GB", "is not allowed"),
        ("state_size_relative", "threshold", "100", "Enter a whole number from 101 to 100000."),
        ("state_size_relative", "days", "0", "Enter a whole number from 1 to 90."),
        ("data_loss_risk", "lead_s", "7 d", "Enter less time than the source keeps data"),
        ("no_completed_checkpoint", "threshold", "1 s", "from 10 s to 90 d"),
    ],
)
def test_an_invalid_value_is_reported_at_its_field_and_the_form_keeps_its_input(
    operator: Client, kind: str, field: str, typed: str, expected: str
) -> None:
    good = WIDE | {"days": "7", "lead_s": "1 d", "since": ""}
    thresholds = {
        "end_to_end_duration": "1 min",
        "state_size": "1 GB",
        "data_loss_risk": "7 d",
        "state_size_relative": "200",
    }
    good |= {"threshold": thresholds.get(kind, "30")} | ({"threshold": ""} if kind == "no_completed_checkpoint" else {})
    response = operator.post(reverse("rule-new", args=[kind]), good | {field: typed})
    assert response.status_code == 422
    form = response.context["form"]
    assert expected in str(form.errors[field].as_text())
    assert list(form.errors) == [field]
    assert form[field].value() == typed
    assert not AlertRule.objects.exists()


def test_two_rules_of_one_kind_and_severity_are_refused_for_a_job(operator: Client, job: Job) -> None:
    make.make_rule(job, severity="critical")
    address = reverse("rule-new", args=["failed_in_window"]) + f"?job={job.pk}"
    response = operator.post(address, GOOD)
    assert "already has a rule of this type and severity" in str(response.context["form"].errors["severity"])


ONE_JOB = GOOD | {"scope": "job", "name": "not used"}


def test_a_new_rule_for_one_job_by_its_name(operator: Client, job: Job) -> None:
    page = operator.get(reverse("rule-new", args=["failed_in_window"])).content.decode()
    assert f'<option value="{job.name}">' in page
    response = operator.post(reverse("rule-new", args=["failed_in_window"]), ONE_JOB | {"job": job.name})
    assert response.headers["Location"] == reverse("job-alerts", args=[job.pk])
    rule = AlertRule.objects.get()
    assert (rule.job, rule.name, rule.selector, rule.threshold) == (job, "", "", 5)
    assert AuditEntry.objects.get(action="rule.change").target == f"job {job.name}"


def test_a_job_name_of_two_clusters_needs_the_cluster(operator: Client, job: Job, now: datetime) -> None:
    twin = make.make_job(make.make_cluster(now, "other"), job.name)
    address = reverse("rule-new", args=["failed_in_window"])
    refused = operator.post(address, ONE_JOB | {"job": job.name})
    assert (refused.status_code, list(refused.context["form"].errors)) == (422, ["job"])
    assert operator.post(address, ONE_JOB | {"job": f"other/{job.name}"}).status_code == 302
    assert AlertRule.objects.get().job == twin


@pytest.mark.parametrize(("typed", "expected"), [("", "Enter a job."), ("nonsense", "There is no job named")])
def test_a_missing_or_unknown_job_is_named(operator: Client, job: Job, typed: str, expected: str) -> None:
    response = operator.post(reverse("rule-new", args=["failed_in_window"]), ONE_JOB | {"job": typed})
    assert response.status_code == 422
    assert expected in str(response.context["form"].errors["job"])
    assert not AlertRule.objects.exists()


def test_a_second_rule_for_a_job_that_was_entered_by_name_is_refused(operator: Client, job: Job) -> None:
    make.make_rule(job, severity="critical")
    response = operator.post(reverse("rule-new", args=["failed_in_window"]), ONE_JOB | {"job": job.name})
    assert list(response.context["form"].errors) == ["severity"]


def test_the_backtest_replays_the_job_that_was_entered_by_name(operator: Client, job: Job) -> None:
    make.make_job(job.cluster, "aaa-quiet")
    page = operator.get(reverse("rule-backtest", args=["failed_in_window"]), ONE_JOB | {"job": job.name})
    assert page.context["subject"].name == job.name
    assert len(page.context["scope"]) == 1


def test_the_backtest_of_several_jobs_replays_the_job_with_the_most_incidents(operator: Client, job: Job) -> None:
    quiet = make.make_job(job.cluster, "aaa-quiet")
    typed = GOOD | {"name": "all", "scope": "everything", "threshold": "2", "window_s": "15 min"}
    address = reverse("rule-backtest", args=["failed_in_window"])
    page = operator.get(address, typed)
    assert page.context["subject"].number == job.pk
    assert len(page.context["replay"].incidents) == 1
    assert f"backtest_of={job.pk}" in page.context["query"]
    chosen = operator.get(address, typed | {"backtest_of": str(quiet.pk)})
    assert chosen.context["subject"].number == quiet.pk


@pytest.mark.parametrize("kind", kinds())
def test_the_form_of_every_kind_saves_its_initial_values(operator: Client, job: Job, kind: str) -> None:
    address = reverse("rule-new", args=[kind])
    form = operator.get(address).context["form"]
    shown = {name: form[name].value() for name in form.fields if name != "job"}  # only a new rule offers one job
    typed = {name: value for name, value in shown.items() if value not in (None, [], False)}
    response = operator.post(address, typed)
    assert response.status_code == 302, response.context["form"].errors
    rule = AlertRule.objects.get(kind=kind)
    again = operator.get(reverse("rule", args=[rule.pk])).context["form"]
    assert {name: again[name].value() for name in again.fields} == shown


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_is_replayed_before_it_is_saved(operator: Client, job: Job, kind: str) -> None:
    form = operator.get(reverse("rule-new", args=[kind])).context["form"]
    typed = {name: form[name].value() for name in form.fields if form[name].value() not in (None, [], False)}
    page = operator.get(reverse("rule-backtest", args=[kind]), typed)
    assert page.status_code == 200
    assert not page.context["form"].errors
    figure = operator.get(reverse("rule-backtest-chart", args=[kind]), typed)
    assert figure.status_code == 200
    assert not AlertRule.objects.exists()


def test_the_backtest_counts_what_would_have_opened_and_suggests_a_threshold(operator: Client, job: Job) -> None:
    typed = GOOD | {"threshold": "2", "window_s": "15 min", "of_job": str(job.pk)}
    page = operator.get(reverse("rule-backtest", args=["failed_in_window"]), typed)
    assert len(page.context["replay"].incidents) == 1
    assert "The rule would have opened 1 incident</b>" in page.content.decode()
    assert (page.context["suggestion"].threshold, page.context["suggestion"].incidents) == (5, 0)
    often = operator.get(reverse("rule-backtest", args=["failed_in_window"]), typed | {"per_week": "2"})
    assert (often.context["suggestion"].threshold, often.context["suggestion"].incidents) == (1, 1)
    body = operator.get(reverse("rule-backtest-chart", args=["failed_in_window"]), typed).json()
    assert max(value for value in body["figure"]["data"][0]["y"]) == 3
    assert len(body["figure"]["layout"]["shapes"]) == 1


def test_the_backtest_covers_every_job_of_the_scope_or_states_how_many(
    operator: Client, job: Job, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.make_job(job.cluster, job.name + "-of-another-name")
    twin = make.make_job(make.make_cluster(now, "other"), job.name)
    make.make_checkpoints(
        make.make_run(twin, now), now - timedelta(minutes=2), make.Shape(count=9, failed=frozenset({3, 4, 5})), 5
    )
    typed = WIDE | {"scope": "everything", "selector": "", "threshold": "2"}
    address = reverse("rule-backtest", args=["failed_in_window"])
    page = " ".join(operator.get(address, typed).content.decode().split())
    assert "total of all 3 jobs in scope: 2 (" in page

    monkeypatch.setattr("monitoring.alerts.backtest.AT_ONCE", 1)
    monkeypatch.setattr("dashboard.views.backtests.BUDGET_S", -1)
    page = operator.get(address, typed).content.decode()
    assert "total of the first 1 of 3 jobs in scope" in page
    assert "Continue counting" in page
    assert "total of all 3 jobs" in operator.get(address, typed | {"patient": "yes"}).content.decode()


def test_backtests_replay_outages_of_clusters_and_waymark(operator: Client, job: Job, now: datetime) -> None:
    Cluster.objects.update(created_at=now - timedelta(days=2))
    for kind in OutageKind:
        Outage.objects.create(
            cluster=job.cluster, kind=kind, began_at=now - timedelta(hours=3), ended_at=now - timedelta(hours=2)
        )
    typed = COMMON | {"name": "r", "threshold": "10 min"}
    for kind in ("cluster_unreachable", "waymark_blind"):
        page = operator.get(reverse("rule-backtest", args=[kind]), typed)
        ((incident),) = page.context["replay"].incidents
        assert (incident.opened_at, incident.closed_at) == (now - timedelta(minutes=170), now - timedelta(hours=2))
        body = operator.get(reverse("rule-backtest-chart", args=[kind]), typed).json()
        assert max(body["figure"]["data"][0]["y"]) == pytest.approx(3_600_000, abs=1)


def test_the_sentence_describes_the_typed_values_and_their_errors(operator: Client, job: Job) -> None:
    address = reverse("rule-sentence", args=["failed_in_window"])
    page = operator.get(address, GOOD | {"threshold": "7", "window_s": "10 min", "of_job": job.pk}).content.decode()
    assert "when 7 checkpoints failed within 10 min" in page
    wrong = operator.get(address, GOOD | {"threshold": "none", "of_job": job.pk}).content.decode()
    assert "Threshold: Enter a whole number" in wrong


def test_a_job_shows_its_rules_and_where_they_come_from(operator: Client, job: Job) -> None:
    ensure_default_rules()
    make.make_rule(job, threshold=9)
    page = operator.get(reverse("job-alerts", args=[job.pk])).content.decode()
    assert "this job only" in page
    assert "No completed checkpoint</a> (all jobs)" in page
    assert ">Failed checkpoints</a> (all jobs)" not in page


def test_the_pages_show_the_limit_that_a_rule_derives_for_the_job(operator: Client, job: Job) -> None:
    config = {"interval": 5000, "timeout": 6000, "tolerable_failed_checkpoints": 100_000}
    job.runs.update(checkpoint_config=config)
    ensure_default_rules()
    rule = make.make_rule(job, kind="no_completed_checkpoint", threshold=None, window_s=None)
    for address in (reverse("job-alerts", args=[job.pk]), reverse("rule", args=[rule.pk])):
        assert "For this job, the limit is 30 min now." in operator.get(address).content.decode()
    job.runs.update(checkpoint_config={"interval": None, "timeout": 6000})
    assert (
        "For this job, the limit is not known now."
        in operator.get(reverse("job-alerts", args=[job.pk])).content.decode()
    )


def test_an_override_starts_with_the_values_of_the_current_rule(operator: Client, job: Job) -> None:
    ensure_default_rules()
    AlertRule.objects.filter(kind="failed_in_window").update(threshold=17)
    page = operator.get(reverse("rule-new", args=["failed_in_window"]) + f"?job={job.pk}")
    assert page.context["form"]["threshold"].value() == 17


def test_the_last_default_rule_of_a_kind_cannot_be_deleted_but_others_can(operator: Client, job: Job) -> None:
    ensure_default_rules()
    default, own = AlertRule.objects.get(kind="failed_in_window"), make.make_rule(job)
    assert (
        "Disable it instead" in operator.post(reverse("rule-remove", args=[default.pk]), follow=True).content.decode()
    )
    operator.post(reverse("rule-remove", args=[own.pk]))
    assert not AlertRule.objects.filter(pk=own.pk).exists()
    assert AlertRule.objects.filter(pk=default.pk).exists()
    assert AuditEntry.objects.filter(action="rule.remove").exists()


def test_a_viewer_cannot_change_rules(client: Client, viewer_user: User, job: Job) -> None:
    client.force_login(viewer_user)
    rule = make.make_rule(job)
    assert client.get(reverse("rule", args=[rule.pk])).status_code == 200
    assert client.post(reverse("rule", args=[rule.pk]), GOOD).status_code == 403
    assert client.post(reverse("rule-remove", args=[rule.pk])).status_code == 403
    assert client.get(reverse("rule-kinds")).status_code == 403


def test_the_list_of_many_rules_needs_few_queries(
    operator: Client, now: datetime, django_assert_max_num_queries
) -> None:
    cluster = make.make_cluster(now)
    for number in range(40):
        make.make_rule(make.make_job(cluster, f"job-{number}"))
    with django_assert_max_num_queries(14):
        assert operator.get(reverse("rules")).status_code == 200


@pytest.mark.parametrize(
    "address", ["/rules/new/nonsense/", "/rules/new/failed_in_window/?job=x", "/rules/backtest/nonsense/"]
)
def test_missing_object_returns_404(operator: Client, address: str) -> None:
    assert operator.get(address).status_code == 404
