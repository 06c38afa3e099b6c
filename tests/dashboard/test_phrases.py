"""What the engine room says is Chinese on Chinese pages: every sentence of its code is found in the phrasebook."""

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

from dashboard.phrasebook import PHRASES
from dashboard.phrases import told
from dashboard.templatetags.figures import fact, words
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason
from monitoring.reasons.recovery import RecoveryReason as Why
from monitoring.recovery.detection import JobFacts
from monitoring.selfwatch.verdict import Verdict
from tests.monitoring.selfwatch.test_verdict import BLIND, WARNED

AT = datetime(2026, 11, 21, 12, 0, 5, tzinfo=UTC)
ROOT = Path(settings.BASE_DIR)
# Whose sentences are kept in rows that pages show, or come up as refusals.
SPOKEN = (
    *("monitoring/recovery/manual.py",),
    *("monitoring/recovery/launching.py", "monitoring/recovery/launch_command.py", "monitoring/recovery/attempt.py"),
    *("monitoring/recovery/launch_values.py", "monitoring/recovery/run_again.py"),
    "monitoring/recovery/run_schedule.py",
    *(str(path.relative_to(ROOT)) for path in (ROOT / "monitoring/recovery/stages").glob("*.py")),
    "monitoring/pauses.py",
    "monitoring/alerts/lifecycle.py",
    *("checkpointing/spark/spark_location.py", "dashboard/views/submitting.py"),
    *("dashboard/acts/bulk.py", "dashboard/acts/rules.py", "dashboard/access/guard.py", "dashboard/access/accounts.py"),
    *("dashboard/access/oidc.py", "dashboard/views/incidents.py"),
)
# Three words, the last two in lower case: a sentence or part of one.
_SENTENCE = re.compile(r"\b[A-Za-z][a-z’']+ [a-z’']+ [a-z’']{2,}\b")
# Told to nobody but a programmer, or to people in another way.
_UNTOLD = re.compile(
    r" is no (answer|list)|Cannot find|^X (of its operators are|of X is|X over)|job that is not there$"
    # Parts of sentences that are in the phrasebook whole.
    r"|could Xbe restored|^and a job is never started empty$|^None of the X states$|^The only state$|restore from, X.$"
)


def sentences(path: Path) -> Iterator[str]:
    """As they are said, with an X for what is filled in. Not docstrings, logs, marked texts, patterns or TypeErrors."""
    tree = ast.parse(path.read_text())
    skipped = {id(part) for node in ast.walk(tree) if _is_silent(node) for part in ast.walk(node)}
    skipped |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) not in skipped and (text := _text(node)):
            yield text


def _is_silent(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Call(func=ast.Name(id="_" | "TypeError" | "gettext" | "ngettext")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "re" | "audit"))):
            return True
    return False


def _text(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts)
    return ""


@pytest.mark.parametrize("name", SPOKEN)
def test_every_sentence_of_the_engine_room_is_in_the_phrasebook(name: str) -> None:
    said = [text for text in sentences(ROOT / name) if _SENTENCE.search(text) and not _UNTOLD.search(text)]
    with override("zh-hans"):
        left = [text for text in said if not any(_is_chinese(text.replace("X", filled)) for filled in ("X", "7", ""))]
    assert left == []


def _is_chinese(text: str) -> bool:
    return not _SENTENCE.search(told(text))


def test_every_phrase_is_whole_in_both_languages() -> None:
    places = re.compile(r"\{(\w+)\}")
    for english, chinese in PHRASES.items():
        assert re.search("[一-鿿]", chinese), english
        assert sorted(places.findall(english)) == sorted(places.findall(chinese)), english


@pytest.mark.parametrize(
    ("english", "chinese"),
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
            "{}. A channel may not lead there unless an administrator allows it ({}).".format(
                "hooks is 10.0.0.7, a private address", "“May lead to a private address”, or WAYMARK_OUTBOUND_ALLOW"
            ),
            "{}。除非管理员允许（{}），渠道不能指向那里。".format(
                "hooks 指向 10.0.0.7，是私有地址", "“允许指向私有地址”，或 WAYMARK_OUTBOUND_ALLOW"
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
def test_it_is_taken_apart_and_what_it_quotes_stays(english: str | Reason, chinese: str) -> None:
    with override("zh-hans"):
        assert told(english) == chinese
    assert told(english) == str(english)


def test_what_nobody_knows_stays_as_it_is() -> None:
    with override("zh-hans"):
        assert told("java.io.IOException: No space left on device") == "java.io.IOException: No space left on device"
        assert told("") == ""
        assert told("Task 3 failed, not sent") == "Task 3 failed, not sent"


_KINDS = ROOT / "monitoring/alerts/kinds"
ALIKE_EVERYWHERE = {"p95"}


def _keys_of_evidence() -> Iterator[str]:
    """Of every dictionary with constant keys in the rules' kinds, which are nothing but evidence and parameters.

    Arguments of reasons are `said`.
    """
    for path in _KINDS.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        said = {id(each.value) for each in nodes if isinstance(each, ast.Assign | ast.AugAssign) and _is_said(each)}
        for node in nodes:
            if isinstance(node, ast.Dict) and id(node) not in said:
                yield from (str(key.value) for key in node.keys if isinstance(key, ast.Constant))


def _is_said(node: ast.Assign | ast.AugAssign) -> bool:
    (target,) = node.targets if isinstance(node, ast.Assign) else (node.target,)
    return isinstance(target, ast.Name) and target.id == "said"


def test_every_key_of_evidence_and_of_the_facts_of_a_decision_has_its_word() -> None:
    keys = {*_keys_of_evidence(), *(field.name for field in fields(JobFacts))}
    with override("zh-hans"):
        left = [key for key in sorted(keys - ALIKE_EVERYWHERE) if not re.search("[一-鿿]", words(key))]
        assert (fact("died_at"), words("window_s")) == ("终止时间", "时间窗口（秒）")
    assert len(keys) > 40
    assert left == []
    assert (fact("died_at"), words("window_s")) == ("died_at", "window s")


@pytest.mark.parametrize("verdict", [found for found, *_ in (*BLIND, *WARNED)])
def test_what_waymark_says_of_itself_is_chinese_with_its_lengths_and_its_reasons(verdict: Verdict) -> None:
    with override("zh-hans"):
        said = told(verdict.reason)
        assert said == f"Waymark {'正常监控。' if verdict.healthy else '无法监控：'}" + "".join(
            told(finding.reason) for finding in (*verdict.problems, *verdict.warnings)
        )
    assert not re.search(r"\d (d|h|min|s)\b", said), said
    quoted = {"Waymark", "Redis", "beat", "worker", "connection", "refused", "ValueError", "such", "thing"}
    assert set(re.findall(r"[A-Za-z]{3,}", said)) <= quoted, said
