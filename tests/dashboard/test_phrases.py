"""What the engine room says is Chinese on Chinese pages: every sentence of its code is found in the phrasebook."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.utils.translation import override

from dashboard.phrasebook import PHRASES
from dashboard.phrases import told

ROOT = Path(settings.BASE_DIR)
# Whose sentences are kept in rows that pages show, or come up as refusals.
SPOKEN = (
    *("monitoring/recovery/detection.py", "monitoring/recovery/manual.py", "monitoring/recovery/going_back.py"),
    *("monitoring/recovery/launching.py", "monitoring/recovery/launch_command.py", "monitoring/recovery/attempt.py"),
    *(str(path.relative_to(ROOT)) for path in (ROOT / "monitoring/recovery/stages").glob("*.py")),
    *("monitoring/pauses.py", "monitoring/savepoints/preflight.py", "monitoring/savepoints/request.py"),
    *("monitoring/savepoints/settle.py", "monitoring/savepoints/disposal.py", "monitoring/savepoints/retention.py"),
    *("monitoring/state_reads/asking.py", "monitoring/alerts/lifecycle.py", "monitoring/alerts/channels.py"),
    *("dashboard/acts/bulk.py", "dashboard/acts/rules.py", "dashboard/access/guard.py", "dashboard/access/accounts.py"),
    *("dashboard/access/oidc.py", "dashboard/views/incidents.py", "dashboard/views/clusters.py"),
)
# Three words, the last two in lower case: a sentence or part of one.
_SENTENCE = re.compile(r"\b[A-Za-z][a-z’']+ [a-z’']+ [a-z’']{2,}\b")
# Told to nobody but a programmer, or to people in another way.
_UNTOLD = re.compile(
    r" is no (answer|list)|Cannot find|^X (of its operators are|of X is|X over)"
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
        left = [text for text in said if _SENTENCE.search(told(text)) and _SENTENCE.search(told(text.replace("X", "")))]
    assert left == []


def test_every_phrase_is_whole_in_both_languages() -> None:
    places = re.compile(r"\{(\w+)\}")
    for english, chinese in PHRASES.items():
        assert re.search("[一-鿿]", chinese), english
        assert sorted(places.findall(english)) == sorted(places.findall(chinese)), english


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        (
            "flights is FAILED since 12:00:05 UTC: java.io.IOException: is it gone, or not known?.",
            "flights 自 12:00:05 UTC 起为 FAILED：java.io.IOException: is it gone, or not known?。",
        ),
        (
            "olga asked to restart from checkpoint 41 of run 3, taken 2026-11-21 12:00:00 UTC.",
            "olga 要求从 运行 3 的检查点 41（生成于 2026-11-21 12:00:00 UTC） 重启。",
        ),
        (
            "it was 1 h 30 min old when the job died, and the job allows 15 min",
            "作业终止时它已有 1 小时 30 分钟，而该作业允许 15 分钟",
        ),
        ("No savepoint now: the job is FAILED, not RUNNING.", "现在不能创建保存点：作业为 FAILED，不是 RUNNING。"),
    ],
)
def test_it_is_taken_apart_and_what_it_quotes_stays(english: str, chinese: str) -> None:
    with override("zh-hans"):
        assert told(english) == chinese
    assert told(english) == english


def test_what_nobody_knows_stays_as_it_is() -> None:
    with override("zh-hans"):
        assert told("java.io.IOException: No space left on device") == "java.io.IOException: No space left on device"
        assert told("") == ""
