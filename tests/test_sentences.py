"""The product branches on codes, numbers and types, never on the wording of sentences."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
_SENTENCE = re.compile(r"[A-Za-z’']{2,} [a-z’']{2,}")
_PARSING = {
    "startswith",
    "endswith",
    "removeprefix",
    "removesuffix",
    "partition",
    "rpartition",
    "split",
    "find",
    "index",
}
# Sentences of other programs, which do not report codes.
FOREIGN = {
    "An error occurred while",  # py4j
    "\n\nJVM stacktrace:",  # PySpark
    'Exception in thread "main" ',  # Java
    "Internal server error",  # Flink, as the next ones
    "restart deactivated",
    "<Exception on server side:",
    "<Exception on server side:\n",
    r"\.? (?:Did you forget|Expected)",  # Jinja
}
# Names of default rules that earlier versions stored.
FORMER_NAMES = {"Waymark itself blind"}
# The states of a cluster in the REST API.
STATES = {"no answer", "not watched", "not asked yet", "another cluster", "secret not readable"}


def _sources() -> Iterator[Path]:
    for package in ("checkpointing", "monitoring", "dashboard"):
        yield from (ROOT / package).rglob("*.py")


def compared_sentences(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each sentence that is compared, searched for, or cut off, or that is a key."""
    for node in ast.walk(ast.parse(source)):
        for each in _compared(node):
            match each:
                case ast.Constant(value=str(text)) if _SENTENCE.search(text):
                    yield each.lineno, text


def _compared(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Compare(left=left, comparators=others):
            return [part for each in (left, *others) for part in _parts(each)]
        case ast.Call(func=ast.Attribute(attr=attr), args=args) if attr in _PARSING:
            return [part for each in args for part in _parts(each)]
        case ast.MatchValue(value=value):
            return [value]
        case ast.Dict(keys=keys):
            return [key for key in keys if key is not None]
    return []


def _parts(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]


def test_no_sentence_is_compared_in_code() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in _sources()
        for line, text in compared_sentences(path.read_text())
        if text not in FOREIGN | STATES | FORMER_NAMES
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "if why == 'it is paused': pass",
        "why.startswith('No such job')",
        "'still runs' in why",
        "why in ('it is paused', other)",
        "match why:\n  case 'it is paused': pass",
        "{'it is paused': 1}[why]",
    ],
)
def test_a_comparison_of_a_sentence_is_found(source: str) -> None:
    assert list(compared_sentences(source))


def test_codes_formats_and_prefixes_are_not_sentences() -> None:
    source = "code == 'recovery.paused'\ntext.startswith('job ')\nkind in ('FAILED', 'a b')\nlog('it is paused')"
    assert list(compared_sentences(source)) == []
