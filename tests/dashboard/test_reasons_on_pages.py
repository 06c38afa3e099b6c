"""Reasons, evidence and facts in the language of the page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.utils.translation import override

from dashboard.language import rendered
from dashboard.templatetags.figures import key_text
from monitoring.reasons.addresses import AddressReason
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.detection import JobFacts
from monitoring.selfwatch.verdict import Verdict
from tests.monitoring.selfwatch.test_verdict import BLIND, WARNED

AT = datetime(2026, 11, 21, 12, 0, 5, tzinfo=UTC)
ROOT = Path(settings.BASE_DIR)


@pytest.mark.parametrize(
    ("reason", "chinese"),
    [
        (
            Why.FAILED_WITH(job="flights", since=AT, cause="java.io.IOException: is it gone, or not known?"),
            "flights 自 12:00:05 UTC 起为 FAILED：java.io.IOException: is it gone, or not known?。",
        ),
        (
            Why.RESTART_ASKED(by="olga", state=Why.CHECKPOINT(number=41, run=3, at=AT)),
            "olga 要求从 运行 3 的检查点 41（生成于 2026-11-21 12:00:05 UTC） 重启。",
        ),
        (
            Why.CHANGE_ASKED_NOTED(
                by="olga",
                what=Why.START_WITH(launch=Why.ANOTHER_LAUNCH(fields=["program"])),
                note="cheaper",
                state=Why.SAVEPOINT_OF_THE_STOP(),
            ),
            "olga 要求以不同的 program 启动（cheaper），自 停止时生成的保存点 继续。",
        ),
        (
            Why.STATE_TOO_OLD(age=timedelta(minutes=90), allowed=timedelta(minutes=15)),
            "作业终止时它已有 1 小时 30 分钟，而该作业允许 15 分钟",
        ),
        (
            EngineReason.LEADER_UNKNOWN_NO_ANSWER(
                why=EngineReason.ZOOKEEPER_SILENT(hosts="zk"), answer="the end of it."
            ),
            "不清楚谁是 leader。位于 zk 的 ZooKeeper 没有响应。最后已知的地址：the end of it.",
        ),
        (
            AddressReason.NAME_FORBIDDEN(
                host="hooks",
                address="10.0.0.7",
                kind=AddressReason.PRIVATE(),
                what=AddressReason.CHANNEL(),
                how=AddressReason.BOX_OR_SETTING(),
            ),
            (
                "hooks 指向 10.0.0.7，是私有地址。"
                "除非管理员允许（通过渠道选项“允许指向私有地址”，或通过 WAYMARK_OUTBOUND_ALLOW），渠道不能指向那里。"
            ),
        ),
        (
            EngineReason.NOT_LISTENING(url="http://flink:8081"),
            "无法连接 http://flink:8081：该处没有服务在监听。",
        ),
        (
            EngineReason.TOO_SLOW(url="http://flink:8081", path="/overview", limit_s=5.0),
            "http://flink:8081 在 5 秒内没有响应 /overview。",
        ),
        (
            EngineReason.PROBLEMS(
                problems=[
                    EngineReason.NOT_READ_TO_END(limit_s=5.0),
                    EngineReason.FIELD_TYPE(
                        where="/jobs/overview.jobs[0].duration",
                        found=EngineReason.TEXT(),
                        expected=EngineReason.WHOLE_NUMBER(),
                    ),
                ]
            ),
            "在 5 秒内没有读完；/jobs/overview.jobs[0].duration 为文本，应为整数。",
        ),
    ],
)
def test_a_reason_is_chinese_and_what_it_quotes_stays(reason: Reason, chinese: str) -> None:
    with override("zh-hans"):
        assert rendered(reason) == chinese
    assert rendered(reason) == str(reason)


def test_a_text_stays_as_it_is() -> None:
    with override("zh-hans"):
        assert rendered("java.io.IOException: disk full") == "java.io.IOException: disk full"
        assert rendered("") == ""


_KINDS = ROOT / "monitoring/alerts/kinds"
ALIKE_EVERYWHERE = {"p95"}


def _keys_of_evidence() -> Iterator[str]:
    """Return the keys of all dictionaries with constant keys in the rules' kinds: evidence and parameters.

    Arguments of reasons are `said`.
    """
    for path in _KINDS.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        said = [each.value for each in nodes if isinstance(each, ast.Assign | ast.AugAssign) and _is_said(each)]
        text = {id(node) for value in said for node in ast.walk(value)}
        for node in nodes:
            if isinstance(node, ast.Dict) and id(node) not in text:
                yield from (str(key.value) for key in node.keys if isinstance(key, ast.Constant))


def _is_said(node: ast.Assign | ast.AugAssign) -> bool:
    (target,) = node.targets if isinstance(node, ast.Assign) else (node.target,)
    return isinstance(target, ast.Name) and target.id == "said"


def test_every_evidence_and_fact_key_is_translated() -> None:
    keys = {*_keys_of_evidence(), *(field.name for field in fields(JobFacts))}
    with override("zh-hans"):
        left = [key for key in sorted(keys - ALIKE_EVERYWHERE) if not re.search("[一-鿿]", key_text(key))]
        assert (key_text("died_at"), key_text("window_s")) == ("终止时间", "时间窗口（秒）")
    assert len(keys) > 40
    assert left == []
    assert (key_text("died_at"), key_text("window_s")) == ("died at", "window s")


@pytest.mark.parametrize("verdict", [found for found, *_ in (*BLIND, *WARNED)])
def test_health_findings_are_chinese(verdict: Verdict) -> None:
    with override("zh-hans"):
        text = rendered(verdict.reason)
        assert text == f"Waymark {'正常监控。' if verdict.healthy else '无法监控：'}" + "".join(
            rendered(finding.reason) for finding in (*verdict.problems, *verdict.warnings)
        )
    assert not re.search(r"\d (d|h|min|s)\b", text), text
    quoted = {"Waymark", "Redis", "beat", "worker", "connection", "refused", "ValueError", "such", "thing"}
    assert set(re.findall(r"[A-Za-z]{3,}", text)) <= quoted, text
