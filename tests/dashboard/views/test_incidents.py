"""Incidents in the list and on their pages: filters, actions on several, snooze, hidden incidents."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from dashboard.forms.note import PresetForm
from monitoring.alerts.incidents import Opening, change_incident, open_incidents
from monitoring.models import (
    AlertRule,
    AuditEntry,
    Checkpoint,
    ConfigurationChange,
    Incident,
    IncidentState,
    Runbook,
    Severity,
)
from tests.dashboard import builders as make
from tests.dashboard.sample_alerts import make_alerts

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster(now: datetime) -> Any:
    return make.make_cluster(now, "eu-prod")


@pytest.fixture
def fail(cluster: Any, now: datetime) -> Any:
    def opened(*names: str, severity: Severity = Severity.WARNING) -> list[Incident]:
        jobs = [make.make_job(cluster, name) for name in names]
        with transaction.atomic():
            return open_incidents([Opening("job_failed", severity, f"{job} failed.", job=job) for job in jobs], now)

    return opened


@pytest.fixture
def dies(cluster: Any, now: datetime) -> Any:
    def silent() -> Incident:
        opening = Opening("cluster_unreachable", Severity.CRITICAL, "eu-prod is silent.", cluster=cluster)
        with transaction.atomic():
            return open_incidents([opening], now)[0]

    return silent


def listed(client: Client, **query: object) -> list[str]:
    return [each.subject for each in client.get(reverse("incidents"), query).context["page"]]


def test_filters_by_state_severity_and_words(viewer: Client, fail: Any) -> None:
    (first,) = fail("flights")
    fail("orders", severity=Severity.CRITICAL)
    Incident.objects.filter(pk=first.pk).update(state=IncidentState.RESOLVED)
    assert listed(viewer) == listed(viewer, state="unresolved") == ["orders"]
    assert sorted(listed(viewer, state="all")) == ["flights", "orders"]
    assert listed(viewer, severity="critical") == ["orders"]
    assert listed(viewer, q="FLIGHTS") == []
    assert listed(viewer, q="FLIGHTS", state="all") == ["flights"]
    assert sorted(listed(viewer, q="eu-prod", state="all")) == ["flights", "orders"]
    for nonsense in ({"state": "x"}, {"severity": "x"}, {"hidden_by": "x"}, {"q": "\0"}, {"hidden_by": "9" * 30}):
        assert len(listed(viewer, **{"state": "all", **nonsense})) == 2
    assert "No matching incidents" in viewer.get(reverse("incidents"), {"q": "zzz"}).content.decode()


def test_incidents_are_in_the_order_of_state_severity_and_age(viewer: Client, fail: Any, now: datetime) -> None:
    old, _ = fail("old", "new")
    urgent, seen, over = fail("urgent", "seen", "over", severity=Severity.CRITICAL)
    Incident.objects.filter(pk__in=[old.pk, urgent.pk]).update(opened_at=now - timedelta(days=1))
    Incident.objects.filter(pk=seen.pk).update(state=IncidentState.ACKNOWLEDGED)
    Incident.objects.filter(pk=over.pk).update(state=IncidentState.RESOLVED, resolved_at=now)
    assert listed(viewer) == ["urgent", "new", "old", "seen"]
    assert listed(viewer, state="all") == ["urgent", "new", "old", "seen", "over"]


def test_a_list_without_unresolved_incidents_links_all_incidents(viewer: Client, fail: Any) -> None:
    fail("flights")
    Incident.objects.update(state=IncidentState.RESOLVED)
    page = viewer.get(reverse("incidents")).content.decode()
    assert "No unresolved incidents" in page
    assert "?state=all" in page


def test_incidents_hidden_by_a_cluster_are_listed_on_its_incident(viewer: Client, fail: Any, dies: Any) -> None:
    parent = dies()
    (child,) = fail("flights")
    assert listed(viewer) == ["eu-prod"]
    assert listed(viewer, hidden_by=parent.pk) == ["flights"]
    assert "hides 1 incident of its jobs" in viewer.get(reverse("incidents")).content.decode()
    assert "flights failed." in viewer.get(reverse("incident", args=[parent.pk])).content.decode()
    assert "Nobody is notified of this incident" in viewer.get(reverse("incident", args=[child.pk])).content.decode()
    assert 'title="open incidents">1' in viewer.get(reverse("nav")).content.decode()


def test_acknowledging_several_incidents_keeps_the_filter_of_the_list(operator: Client, fail: Any) -> None:
    chosen = fail("a", "b", "c")[:2]
    back = reverse("incidents") + "?severity=warning"
    values = {"incident": [each.pk for each in chosen], "note": "on it", "back": back}
    response = operator.post(reverse("incidents-acknowledge"), values)
    assert response.headers["Location"] == back
    assert Incident.objects.filter(state=IncidentState.ACKNOWLEDGED, acknowledged_by="olga").count() == 2
    entries = AuditEntry.objects.filter(action="incident.acknowledge")
    assert [(each.details["before"], each.details["after"], each.reason) for each in entries] == [
        ("open", "acknowledged", "on it")
    ] * 2


@pytest.mark.parametrize(
    ("name", "state", "expected"),
    [
        ("incidents-snooze", IncidentState.SNOOZED, "2 incidents snoozed. 1 incident had already changed."),
        ("incidents-resolve", IncidentState.RESOLVED, "2 incidents resolved. 1 incident had already changed."),
    ],
)
def test_several_are_snoozed_or_resolved_at_once(
    operator: Client, fail: Any, name: str, state: IncidentState, expected: str
) -> None:
    first, second, over, _other = fail("a", "b", "c", "d")
    Incident.objects.filter(pk=over.pk).update(state=IncidentState.RESOLVED)
    values = {"incident": [first.pk, second.pk, over.pk], "note": "disk", "preset": "2h"}
    page = operator.post(reverse(name), values, follow=True)
    assert expected in page.content.decode()
    assert set(Incident.objects.filter(pk__in=[first.pk, second.pk]).values_list("state", flat=True)) == {state}
    assert AuditEntry.objects.filter(reason="disk").count() == 2


@pytest.mark.parametrize(
    ("preset", "until"),
    [("30m", timedelta(minutes=30)), ("2h", timedelta(hours=2))],
)
def test_a_snooze_preset_sets_the_end_of_the_snooze(
    operator: Client, fail: Any, now: datetime, preset: str, until: timedelta
) -> None:
    (incident,) = fail("flights")
    operator.post(reverse("incident-snooze", args=[incident.pk]), {"preset": preset, "note": ""})
    incident.refresh_from_db()
    assert incident.snoozed_until is not None
    assert abs(incident.snoozed_until - now - until) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("zone", "at", "until"),
    [
        ("Asia/Shanghai", "2026-11-26T17:30:00+00:00", "2026-11-28T01:00:00+00:00"),  # it is 01:30 of the 27th there
        ("UTC", "2026-11-26T17:30:00+00:00", "2026-11-27T09:00:00+00:00"),
        ("Europe/Berlin", "2026-10-24T12:00:00+00:00", "2026-10-25T08:00:00+00:00"),  # summer time ends that night
    ],
)
def test_tomorrow_is_relative_to_the_time_zone_of_the_reader(zone: str, at: str, until: str) -> None:
    form = PresetForm({"preset": "tomorrow"})
    assert form.is_valid()
    with timezone.override(zone):
        assert form.until(datetime.fromisoformat(at)) == datetime.fromisoformat(until)


def test_an_unknown_preset_changes_nothing(operator: Client, fail: Any) -> None:
    (incident,) = fail("flights")
    page = operator.post(reverse("incident-snooze", args=[incident.pk]), {"preset": "never"}, follow=True)
    assert "Select how long to snooze." in page.content.decode()
    page = operator.post(reverse("incidents-snooze"), {"incident": [incident.pk]}, follow=True)
    assert "Select how long to snooze." in page.content.decode()
    incident.refresh_from_db()
    assert incident.state == IncidentState.OPEN


def test_actions_are_at_the_top_of_the_page(operator: Client, viewer: Client, fail: Any) -> None:
    (incident,) = fail("flights")
    page = operator.get(reverse("incident", args=[incident.pk])).content.decode()
    assert page.index('class="acts"') < page.index("<h1>")
    restart = reverse("job-restart", args=[incident.job_id])
    assert restart in page
    read_only = viewer.get(reverse("incident", args=[incident.pk])).content.decode()
    assert "Open job" in read_only
    assert restart not in read_only


@pytest.mark.parametrize("chosen", [[], ["x"], [""], ["9" * 40]])
def test_an_invalid_selection_is_reported_and_changes_nothing(operator: Client, fail: Any, chosen: list[str]) -> None:
    fail("a")
    values = {"incident": chosen, "back": "https://evil.example/"}
    page = operator.post(reverse("incidents-acknowledge"), values, follow=True)
    assert "Select at least one incident." in page.content.decode()
    assert page.redirect_chain == [(reverse("incidents"), 302)]
    assert Incident.objects.get().state == IncidentState.OPEN


def test_a_snooze_is_confirmed_with_its_end_and_audited(operator: Client, fail: Any, now: datetime) -> None:
    (incident,) = fail("flights")
    page = operator.post(
        reverse("incident-snooze", args=[incident.pk]), {"snooze_for": "2 h", "note": "x"}, follow=True
    )
    assert "Incident snoozed until" in page.content.decode()
    incident.refresh_from_db()
    assert incident.state == IncidentState.SNOOZED
    assert incident.snoozed_until is not None
    assert abs(incident.snoozed_until - now - timedelta(hours=2)) < timedelta(minutes=1)
    assert AuditEntry.objects.get(action="incident.snooze").details["after"] == "snoozed"


@pytest.mark.parametrize(
    ("span", "expected"), [("", "Enter a duration"), ("1 s", "from 1 min to 30 d"), ("soon", "a number and a unit")]
)
def test_an_invalid_snooze_is_reported_at_its_field(operator: Client, fail: Any, span: str, expected: str) -> None:
    (incident,) = fail("flights")
    values = {"snooze_for": span, "note": "do not lose this"}
    response = operator.post(reverse("incident-snooze", args=[incident.pk]), values)
    assert response.status_code == 422
    assert expected in response.content.decode()
    assert "do not lose this" in response.content.decode()
    incident.refresh_from_db()
    assert incident.state == IncidentState.OPEN


@pytest.mark.parametrize(
    "name",
    [
        *("incident-snooze", "incident-acknowledge", "incident-resolve", "incident-note", "incident-reopen"),
        "incident-assign",
    ],
)
def test_a_viewer_may_not_act(viewer: Client, fail: Any, name: str) -> None:
    (incident,) = fail("flights")
    assert viewer.post(reverse(name, args=[incident.pk]), {"snooze_for": "2 h"}).status_code == 403
    for several in ("incidents-acknowledge", "incidents-snooze", "incidents-resolve"):
        assert viewer.post(reverse(several), {"incident": [incident.pk], "preset": "2h"}).status_code == 403
    incident.refresh_from_db()
    assert incident.state == IncidentState.OPEN
    assert "Acknowledge selected" not in viewer.get(reverse("incidents")).content.decode()


@pytest.fixture
def failing(cluster: Any, now: datetime) -> Incident:
    """Return an incident of a rule, which began 20 minutes ago, of a job with checkpoints."""
    job = make.make_job(cluster, "flights")
    run = make.make_run(job, now)
    make.make_checkpoints(run, now, make.Shape(count=90, every=timedelta(seconds=20), failed=frozenset(range(3, 9))))
    return make.make_incident(make.make_rule(job), now - timedelta(minutes=20))


def test_an_incident_shows_the_value_and_the_limit_of_its_rule(viewer: Client, failing: Incident) -> None:
    address = reverse("incident-chart", args=[failing.pk])
    assert f'data-chart="{address}"' in viewer.get(reverse("incident", args=[failing.pk])).content.decode()
    answer = viewer.get(address).json()
    assert answer["empty"] is False
    value, limit = answer["figure"]["data"]
    assert (value["meta"]["role"], limit["meta"]["role"]) == ("state", "limit")
    assert max(y for y in value["y"] if y is not None) >= 3
    assert set(limit["y"]) == {3}
    (band,) = [shape for shape in answer["figure"]["layout"]["shapes"] if shape["name"] == "incident"]
    assert band["x0"] < band["x1"]


def test_an_incident_without_a_rule_has_no_chart(viewer: Client, fail: Any) -> None:
    (incident,) = fail("flights")
    assert "data-chart" not in viewer.get(reverse("incident", args=[incident.pk])).content.decode()
    assert viewer.get(reverse("incident-chart", args=[incident.pk])).status_code == 404


def test_the_last_good_checkpoint_leads_to_a_restart_from_it(
    operator: Client, viewer: Client, failing: Incident
) -> None:
    newest = Checkpoint.objects.filter(run__job=failing.job, status="COMPLETED").order_by("-triggered_at")[0]
    link = reverse("job-restart", args=[failing.job_id]) + f"?from=checkpoint-{newest.pk}"
    page = operator.get(reverse("incident", args=[failing.pk])).content.decode()
    assert "Last good checkpoint" in page
    assert link in page
    assert link not in viewer.get(reverse("incident", args=[failing.pk])).content.decode()


def test_a_note_is_added_in_every_state_and_is_audited(operator: Client, failing: Incident) -> None:
    for state in (IncidentState.OPEN, IncidentState.RESOLVED):
        Incident.objects.filter(pk=failing.pk).update(state=state)
        page = operator.post(reverse("incident-note", args=[failing.pk]), {"note": f"seen {state}"}, follow=True)
        assert f"olga: seen {state}" in page.content.decode()
    assert AuditEntry.objects.filter(action="incident.note").count() == 2
    page = operator.post(reverse("incident-note", args=[failing.pk]), {"note": " "}, follow=True)
    assert "Enter a note." in page.content.decode()
    assert failing.events.filter(kind="note").count() == 2


def test_a_resolved_incident_is_reopened(operator: Client, failing: Incident) -> None:
    address = reverse("incident-reopen", args=[failing.pk])
    assert address not in operator.get(reverse("incident", args=[failing.pk])).content.decode()
    assert "open already" in operator.post(address, {"note": ""}, follow=True).content.decode()
    operator.post(reverse("incident-resolve", args=[failing.pk]), {"note": ""})
    assert address in operator.get(reverse("incident", args=[failing.pk])).content.decode()
    page = operator.post(address, {"note": "it is back"}, follow=True)
    assert "Incident reopened." in page.content.decode()
    failing.refresh_from_db()
    assert failing.state == IncidentState.OPEN
    assert AuditEntry.objects.get(action="incident.reopen").reason == "it is back"


def test_hidden_incidents_are_listed_for_their_assignee(operator: Client, fail: Any) -> None:
    (hiding, hidden) = fail("flights", "orders")
    Incident.objects.filter(pk=hidden.pk).update(inhibited_by=hiding, assigned_to="olga")
    assert listed(operator) == ["flights"]
    assert listed(operator, assignee="olga") == ["orders"]
    assert "more hidden by" not in operator.get(reverse("incidents"), {"assignee": "olga"}).content.decode()


def test_an_assigned_incident_is_listed_with_its_assignee(operator: Client, viewer_user: Any, fail: Any) -> None:
    (mine, _other) = fail("flights", "orders")
    address = reverse("incident-assign", args=[mine.pk])
    page = operator.post(address, {"me": "1", "was": "", "note": "on it"}, follow=True).content.decode()
    assert "Incident assigned to olga." in page
    assert "Assigned to olga by olga: on it" in page
    assert listed(operator, assignee="olga") == ["flights"]
    assert "assigned to olga" in operator.get(reverse("incidents")).content.decode()
    entry = AuditEntry.objects.get(action="incident.assign")
    assert (entry.details["was"], entry.details["now"], entry.reason) == ("", "olga", "on it")
    page = operator.post(address, {"assignee": "victor", "was": "olga"}, follow=True).content.decode()
    assert "“victor” is no active account that may operate this job." in page
    operator.post(address, {"assignee": "", "was": "olga"})
    mine.refresh_from_db()
    assert mine.assigned_to == ""


def test_a_second_person_cannot_take_an_assigned_incident(operator: Client, fail: Any) -> None:
    (incident,) = fail("flights")
    Incident.objects.filter(pk=incident.pk).update(assigned_to="ada")  # after the page was shown
    page = operator.post(reverse("incident-assign", args=[incident.pk]), {"me": "1", "was": ""}, follow=True)
    assert "This incident is assigned to ada already." in page.content.decode()
    incident.refresh_from_db()
    assert incident.assigned_to == "ada"
    assert not AuditEntry.objects.filter(action="incident.assign").exists()


def test_a_resolved_incident_is_not_assigned(operator: Client, fail: Any) -> None:
    (incident,) = fail("flights")
    Incident.objects.update(state=IncidentState.RESOLVED)
    page = operator.post(reverse("incident-assign", args=[incident.pk]), {"me": "1", "was": ""}, follow=True)
    assert "This incident is resolved already." in page.content.decode()
    assert reverse("job-restart", args=[incident.job_id]) not in page.content.decode()


def test_an_incident_shows_the_runbooks_of_its_rule_and_of_its_job(viewer: Client, failing: Incident) -> None:
    AlertRule.objects.update(runbook="https://wiki.example.org/failed")
    Runbook.objects.create(selector="job=flights", text="Ask <b>ada</b>.")
    Runbook.objects.create(selector="job=orders", text="Not this one.")
    page = viewer.get(reverse("incident", args=[failing.pk])).content.decode()
    assert 'href="https://wiki.example.org/failed"' in page
    assert "Ask &lt;b&gt;ada&lt;/b&gt;." in page
    assert "Not this one." not in page


def test_an_incident_shows_what_changed_in_the_hour_before(viewer: Client, failing: Incident, now: datetime) -> None:
    def change(key: str, back: int) -> None:
        values = {"part": "checkpointing", "kind": "changed", "before": 1, "after": 2}
        ConfigurationChange.objects.create(job=failing.job, at=now - timedelta(minutes=back), key=key, **values)

    for key, back in (("after", 10), ("just-before", 25), ("before", 75), ("long-before", 90)):
        change(key, back)
    page = viewer.get(reverse("incident", args=[failing.pk])).content.decode()
    assert "just-before: 1 → 2" in page
    assert ">before: 1 → 2" in page
    assert "long-before" not in page
    assert ">after:" not in page
    assert reverse("job-compare", args=[failing.job_id]) in page
    chart = viewer.get(reverse("incident-chart", args=[failing.pk])).json()
    flags = [label["hovertext"] for label in chart["figure"]["layout"]["annotations"] if label.get("name") == "change"]
    assert any("just-before" in text for text in flags)


def test_jobs_that_fail_together_are_grouped_above_the_list(viewer: Client, fail: Any) -> None:
    fail("a", "b")
    assert "Incidents that opened together" not in viewer.get(reverse("incidents")).content.decode()
    (third,) = fail("c")
    page = viewer.get(reverse("incidents")).content.decode()
    assert "3 jobs on cluster eu-prod failed within" in page
    assert reverse("incident", args=[third.pk]) in page
    assert "3 jobs on" not in viewer.get(reverse("incidents"), {"state": "resolved"}).content.decode()


def test_repeated_changes_are_folded_with_their_number(viewer: Client, fail: Any, now: datetime) -> None:
    (incident,) = fail("flights")
    for count in (4, 5, 6):
        change_incident(incident, f"{count} failed.", {"count": count}, now + timedelta(minutes=count))
    page = viewer.get(reverse("incident", args=[incident.pk])).content.decode()
    assert "3 times since" in page
    assert "6 failed." in page


def test_an_incident_of_an_older_version_keeps_its_text_in_every_language(viewer: Client, fail: Any) -> None:
    (incident,) = fail("flights")
    assert incident.sentence_value is None
    viewer.cookies["django_language"] = "zh-hans"
    for page in (reverse("incidents"), reverse("incident", args=[incident.pk])):
        assert "failed." in viewer.get(page).content.decode()  # the sentence does not repeat the job's name


def test_list_and_page_need_as_many_queries_for_many_incidents_as_for_few(viewer: Client, fail: Any, dies: Any) -> None:
    make.make_channel()

    def queries_needed(page: str, *args: object) -> int:
        with CaptureQueriesContext(connection) as queries:
            assert viewer.get(reverse(page, args=args)).status_code == 200
        return len(queries)

    fail("a", "b")
    few = queries_needed("incidents"), queries_needed("incidents")
    fail(*(f"job-{n}" for n in range(30)))
    assert queries_needed("incidents") == few[1]
    parent = dies()
    some = queries_needed("incident", parent.pk)
    fail(*(f"more-{n}" for n in range(30)))
    assert queries_needed("incident", parent.pk) == some


def test_pages_with_many_alerts_open(viewer: Client, now: datetime) -> None:
    night = make_alerts(now, jobs=3)
    pages = {
        "incidents": [],
        "channels": [],
        "deliveries": [],
        "maintenance": [],
        "incident": [night.cluster_incident.pk, night.long_incident.pk],
        "channel": [night.channel.pk],
        "delivery": [night.dead_message.pk, night.digest.pk],
        "maintenance-window": [night.window.pk],
    }
    for name, rows in pages.items():
        for args in [[pk] for pk in rows] or [[]]:
            assert viewer.get(reverse(name, args=args)).status_code == 200, name
