from __future__ import annotations

from typing import Any

import pytest
from django.utils.translation import override

from dashboard.audit_texts import action_text, actor_name, reason_text, target_text
from dashboard.management.commands import cluster
from monitoring import audit
from monitoring.models import AuditEntry
from monitoring.reasons.alerts import AlertReason
from monitoring.reasons.savepoints import SavepointReason


def entry(action: str, **details: Any) -> AuditEntry:
    return AuditEntry(actor="olga", action=action, target="job flights", details=details)


@pytest.mark.parametrize(
    ("action", "details", "words"),
    [
        ("savepoint.request", {"savepoint": 4}, "requested a savepoint"),
        ("savepoint.schedule", {"schedule": "every 5 min"}, "set the savepoint schedule to every 5 min"),
        ("savepoint.schedule", {"schedule": "none"}, "set the savepoint schedule to off"),
        ("rule.change", {"threshold": "5", "window_s": "900"}, "changed the rule: threshold 5, window 15 min"),
        (
            "job.automation",
            {"was": {"auto_restart": True}, "now": {"auto_restart": False, "automation_note": ""}},
            "changed the automation: automatic restart off, note none",
        ),
        ("job.automation", {}, "changed the automation: nothing"),
        ("something.new", {}, "something.new"),
    ],
)
def test_an_audit_entry_reads_as_a_sentence(action: str, details: dict[str, Any], words: str) -> None:
    assert action_text(entry(action, **details)) == words


def test_actors_that_are_not_accounts_are_named_in_the_language_of_the_page() -> None:
    names = (audit.AUTOMATION, audit.ANONYMOUS, cluster.ACTOR, "olga", "Job failed")
    assert [actor_name(name) for name in names] == ["waymark", "anonymous", "manage.py", "olga", "Job failed"]
    with override("zh-hans"):
        assert [actor_name(name) for name in names] == ["Waymark", "匿名用户", "命令行", "olga", "Job failed"]


def test_schedule_is_in_the_language_of_the_page() -> None:
    value = SavepointReason.EVERY(length=300).as_json()
    with override("zh-hans"):
        assert "每 5 分钟" in action_text(entry("savepoint.schedule", schedule="every 5 min", schedule_value=value))


def test_roles_and_their_scopes_are_in_the_language_of_the_page() -> None:
    scope = AlertReason.OF_CLUSTER(cluster="eu-prod").as_json()
    granted = entry("user.grant", now={"role": "operator", "on": "cluster eu-prod"}, on_value=scope)
    old = entry("user.ungrant", was={"role": "viewer", "on": "cluster eu-prod"})  # of an earlier release
    created = entry("user.create", now={"role": "nothing"})
    assert action_text(granted) == "granted operator on cluster eu-prod"
    assert action_text(old) == "revoked viewer on cluster eu-prod"
    assert action_text(created) == "created the account: role grants only"
    with override("zh-hans"):
        assert action_text(granted) == "授予了操作员（范围：集群 eu-prod）"
        assert action_text(created).endswith("仅限授权")


def test_a_job_is_named_without_the_word_job() -> None:
    assert target_text(entry("rule.change")) == "flights"


def test_schedule_is_rendered_as_a_reason() -> None:
    assert reason_text(AuditEntry(reason="schedule")) == "scheduled"
