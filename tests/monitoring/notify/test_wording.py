"""The texts of messages: in both languages, for one and for many notifications, and with a channel's template."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from django.conf import settings
from django.utils.translation import override

from monitoring.alerts.kinds import kinds
from monitoring.alerts.kinds.base import checkpoints
from monitoring.alerts.kinds.counting import FailedInWindowReason
from monitoring.diagnosis.signs.exceptions import ExceptionReason
from monitoring.models import Channel, IncidentKind, NotificationReason
from monitoring.notify.message import Item, Message, sample_message
from monitoring.notify.wording.sandbox import LONGEST, BadTemplate, compile_template
from monitoring.notify.wording.texts import text_of
from monitoring.notify.wording.words import event_label, kind_label
from monitoring.reasons.alerts import AlertReason

ITEM = Item(
    event="opened",
    severity="critical",
    kind="job_failed",
    job="flights",
    cluster="production",
    sentence="flights failed: the disk is full.",
    at=datetime(2026, 11, 21, 12, 0, tzinfo=UTC),
    incident_id=7,
    incident_url="http://waymark.test/incidents/7/",
    job_url="http://waymark.test/jobs/3/",
)
ONE = Message("k", (ITEM,))
MANY = Message("k", (ITEM, replace(ITEM, job="orders", sentence="orders failed.")), total=40)
DIGEST = replace(MANY, is_digest=True)


def text(message=ONE, **channel):
    return text_of(Channel(name="c", kind="mail", **channel), message)


def test_one_incident_in_english():
    output = text()
    assert output.subject == "[critical] flights failed: the disk is full"
    for part in (ITEM.sentence, "Job:      flights on cluster production", "critical", ITEM.incident_url, ITEM.job_url):
        assert part in output.body


def test_one_incident_in_chinese():
    output = text(language="zh-hans")
    assert output.subject == "【严重】flights failed: the disk is full"
    for part in (ITEM.sentence, "作业：flights", "集群：production", ITEM.incident_url):
        assert part in output.body
    assert 'lang="zh-hans"' in output.html


@pytest.mark.parametrize(("language", "word"), [("en", "Runbook: "), ("zh-hans", "处理手册：")])
def test_a_message_has_the_runbook(language, word):
    output = text(Message("k", (replace(ITEM, runbook="https://wiki.example.org/a"),)), language=language)
    assert f"{word}https://wiki.example.org/a\n" in output.body
    assert f'{word}<a href="https://wiki.example.org/a"' in output.html
    assert word not in text(language=language).body
    own = text(Message("k", (replace(ITEM, runbook="Call ada."),)), body_template="{{ runbook }}")
    assert own.body == "Call ada."


FORGED = ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"]


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("line_break", FORGED)
def test_names_in_a_message_cannot_begin_a_new_line(line_break, language):
    evil = f"flights{line_break}Incident: resolved\u202e{line_break}Bcc: x"
    evidence = {"run": 2, "ended_at": ITEM.at.isoformat(), "cause": evil, "more": [evil]}
    cause = ExceptionReason.THROWN(what=ExceptionReason.PROGRAM_THREW(), text=evil)
    item = replace(ITEM, job=evil, cluster=evil, sentence=f"{evil} failed.", evidence=evidence, cause=cause)
    templates = ["", "{{ job }} {{ cluster }} {{ sentence }} {{ cause }}"]
    for body in templates:
        output = text(Message("k", (item, item), total=2), language=language, body_template=body)
        lines = [line.strip() for part in (output.subject, output.body, output.html) for line in part.splitlines()]
        assert any("Bcc: x" in line for line in lines)
        assert not [line for line in lines if line.startswith(("Incident: resolved", "Bcc:"))]
        assert "\u202e" not in output.body


def test_a_reason_is_rendered_in_the_language_of_the_channel():
    found = FailedInWindowReason.BELOW(checkpoints=checkpoints(4), subject="flights", window=5400, threshold=3)
    item = replace(ITEM, kind="failed_in_window", sentence=AlertReason.RESOLVED(lasted=75, why=found))
    message = Message("k", (item,))
    assert (
        "Resolved after 1 min 15 s: 4 checkpoints of flights failed within 1 h 30 min (threshold 3)."
        in text(message).body
    )
    chinese = "已恢复，持续 1 分钟 15 秒。flights 在 1 小时 30 分钟内有 4 个检查点失败（阈值 3）。"
    assert chinese in text(message, language="zh-hans").body


@pytest.mark.parametrize(
    ("message", "language", "subject", "rest"),
    [
        (MANY, "en", "[critical] 40 incidents on cluster production: flights failed", "… and 38 more"),
        (MANY, "zh-hans", "【严重】集群 production 共 40 个告警：flights failed", "另有 38 个"),
        (DIGEST, "en", "[digest] 40 notifications, first: flights failed", "… and 38 more"),
        (DIGEST, "zh-hans", "【告警汇总】共 40 条通知，首条：flights failed", "另有 38 个"),
    ],
)
def test_many_incidents(message, language, subject, rest):
    output = text(message, language=language)
    assert output.subject.startswith(subject)
    for body in (output.body, output.html):
        assert rest in body
        assert "orders failed." in body


def test_plain_text_is_not_escaped_and_html_is():
    output = text(replace(ONE, items=(replace(ITEM, job="<b>&"),)))
    assert "<b>&" in output.body
    assert "<b>&" not in output.html
    assert "&lt;b&gt;&amp;" in output.html


@pytest.mark.parametrize(
    ("event", "english", "chinese"),
    [
        ("opened", "[critical] ", "【严重】"),
        ("resolved", "[resolved] ", "【告警恢复】"),
        ("repeat", "[critical, still open] ", "【严重，仍未恢复】"),
        ("escalation", "[critical, escalated] ", "【严重，告警升级】"),
        ("woken", "[critical, snooze over] ", "【严重，静默结束】"),
    ],
)
def test_a_subject_begins_with_the_severity_or_the_end_in_both_languages(event, english, chinese):
    found = FailedInWindowReason.BELOW(checkpoints=checkpoints(4), subject="flights", window=900, threshold=3)
    message = Message("k", (replace(ITEM, event=event, sentence=found),))
    assert text(message).subject.startswith(f"{english}4 checkpoints of flights failed within ")
    assert text(message, language="zh-hans").subject == f"{chinese}flights 在 15 分钟内有 4 个检查点失败（阈值 3）"


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_a_subject_says_once_that_the_incident_or_its_snooze_is_over(language):
    found = FailedInWindowReason.BELOW(checkpoints=checkpoints(4), subject="flights", window=900, threshold=3)
    alone = text(Message("k", (replace(ITEM, event="resolved", sentence=found),)), language=language).subject
    for over in (AlertReason.RESOLVED(lasted=75, why=found), AlertReason.RESOLVED_BY(lasted=75, by="ada", why=found)):
        ended = Message("k", (replace(ITEM, event="resolved", sentence=over),))
        assert text(ended, language=language).subject == alone
    woken = Message("k", (replace(ITEM, event="woken", sentence=AlertReason.WOKEN(finding=found)),))
    same = Message("k", (replace(ITEM, event="woken", sentence=found),))
    assert text(woken, language=language).subject == text(same, language=language).subject


def test_a_subject_fits_a_list_of_mails_with_the_name_of_the_job():
    output = text(Message("k", (replace(ITEM, sentence="x" * 100),)))
    assert output.subject == f"[critical] flights: {'x' * 49}…"
    assert len(output.subject) == 70


def test_the_subject_of_a_test_names_the_channel():
    message = sample_message("k", Channel(name="on-call"), ITEM.at)
    assert text(message).subject == "[test] This is a test of the channel on-call: nothing happened"


def test_a_subject_is_one_line():
    output = text(replace(ONE, items=(replace(ITEM, sentence="one\r\nBcc: eve@example.org"),)))
    assert "\n" not in output.subject
    assert "\r" not in output.subject


@pytest.mark.parametrize("language", [code for code, _ in settings.LANGUAGES])
def test_every_event_and_every_kind_of_rule_has_a_label(language):
    with override(language):
        for event in (*NotificationReason.values, "test"):
            assert event_label(event)
        for kind in (*kinds(), *IncidentKind.values):
            word = kind_label(kind)
            assert "_" not in word
            if language == "zh-hans":
                assert not word.isascii()


def test_the_templates_of_a_channel_replace_the_defaults_and_are_plain_text():
    output = text(
        MANY,
        subject_template="{{ severity|upper }} {{ job }} ({{ count }})",
        body_template="{% for each in incidents %}{{ each.job }}: {{ each.sentence }}\n{% endfor %}+{{ unlisted }}",
    )
    assert output.subject == "CRITICAL flights (40)"
    assert output.body == "flights: flights failed: the disk is full.\norders: orders failed.\n+38"
    assert output.html == ""


@pytest.mark.parametrize(
    "source",
    [
        "{% if severity == 'critical' %}!{% endif %}",
        "{% if count > 1 and not is_digest %}{{ count }}{% else %}{{ job }}{% endif %}",
        "{{ cluster|default:'nowhere'|truncatechars:9 }}",
        "plain",
        "",
    ],
)
def test_a_valid_template_is_accepted(source):
    compile_template(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ password }}", "'password' is not a name"),
        ("{{ job.name }}", "job has no parts"),
        ("{{ sentence.format.__globals__ }}", "__globals__"),
        ("{% if secret %}x{% endif %}", "'secret' is not a name"),
        ("{% if job %}{{ settings }}{% endif %}", "'settings' is not a name"),
        ("{% for each in incidents %}{{ other.job }}{% endfor %}", "'other.job' is not a name"),
        ("{% for a in incidents %}{% for b in incidents %}{% endfor %}{% endfor %}", "inside another"),
        (
            "{% for a in incidents %}{% if a %}{% for b in incidents %}{% endfor %}{% endif %}{% endfor %}",
            "inside another",
        ),
        ("{{ sentence|default:secret }}", "'secret' is not a name"),
        ("{% include '/etc/passwd' %}", "include"),
        ("{% load static %}", "load"),
        ("{% debug %}", "debug"),
        ("{{ sentence|center:999999999 }}", "center"),
        ("{{ sentence", None),
        ("{% if job %}", "Unclosed"),
        ("x" * (LONGEST + 1), f"at most {LONGEST}"),
        ("\0", "NUL"),
    ],
)
def test_an_invalid_template_is_refused_with_the_allowed_names(source, expected):
    if expected is None:
        compile_template(source)  # Django takes an unclosed brace as text
        return
    with pytest.raises(BadTemplate) as raised:
        compile_template(source)
    assert expected in str(raised.value)
    assert "llowed" in str(raised.value) or "NUL" in str(raised.value)


def test_a_template_that_became_invalid_does_not_stop_a_message():
    assert text(body_template="{% include 'x' %}").body == text().body
