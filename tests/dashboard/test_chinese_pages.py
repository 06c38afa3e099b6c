"""On Chinese pages, the only English texts are data, names and the engine's terms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.test import Client
from django.utils.translation import gettext as translated
from django.utils.translation import override
from django.utils.translation.template import templatize

from monitoring import broker
from monitoring.alerts.kinds import kinds
from monitoring.reasons.reason import render
from tests.dashboard.access.permissions import PERMISSIONS
from tests.dashboard.access.sample_rows import rows_of_every_kind
from tests.dashboard.access.test_permission_table import address_of

ROOT = Path(configured.BASE_DIR)
_TEXT = r"u?('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_MARKED = re.compile(rf"(?<![\w.])(?:_|gettext|ngettext)\({_TEXT}")
_FUNCTIONS = ("_", "gettext", "gettext_lazy", "gettext_noop", "ngettext")
# Texts that are equal in both languages: names, formats and input.
SAME = {
    "Jar",
    "API",
    "ID",
    "Task managers",
    "Apache Flink",
    "PySpark",
    "Spark Structured Streaming",
    *("Kubernetes", "kubeconfig", "Kubeconfig", "Operator", "YARN", "History Server"),
    "Webhook",
    "Apprise URL",
    "YAML",
    "CSV",
    "JSON",
    "%(database_ms)s ms",
    *("KB", "MB", "GB", "TB", "PB", "EB"),
    "… of %(name)s…",  # how a sentence names its subject
    "waymark",
}


def texts_of_templates() -> Iterator[str]:
    for path in [*(ROOT / "templates").rglob("*.html"), *(ROOT / "templates").rglob("*.txt")]:
        for quoted in _MARKED.findall(templatize(path.read_text())):
            yield ast.literal_eval(quoted)


def texts_of_code() -> Iterator[str]:
    for path in [*(ROOT / "dashboard").rglob("*.py"), *(ROOT / "monitoring").rglob("*.py")]:
        source = path.read_text()
        if "gettext" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
            if named and node.args and isinstance(node.args[0], ast.Constant):  # type: ignore[attr-defined]
                yield str(node.args[0].value)  # type: ignore[attr-defined]


def test_every_marked_text_is_translated() -> None:
    with override("zh-hans"):
        marked = {*texts_of_templates(), *texts_of_code()}
        left = [text for text in sorted(marked) if not re.search("[一-鿿]", translated(text)) and _has_words(text)]
    assert len(marked) > 1500
    assert left == [], left


def _has_words(text: str) -> bool:
    """Return whether the text has English words besides placeholders, markup and texts that are equal in both."""
    bare = re.sub(r"%\(\w+\)s|\{[^}]*\}|<[^>]+>|&\w+;|high-availability\S*|[\w.-]*ZooKeeper|ID|Flink", "", text)
    return text not in SAME and re.search(r"[A-Za-z]{2,}", bare) is not None


def test_every_rule_kind_is_explained() -> None:
    for kind in kinds().values():
        assert re.search("[一-鿿]", render(kind.explain(kind.fill(None, None, {})), "zh-hans")), kind.name


class _Sentences(HTMLParser):
    """A parser that collects the visible text of a page, and the attributes that are displayed or read aloud."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._closed: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNREAD:
            self._closed.append(tag)
        self.found += [value for name, value in attrs if name in _READ and value]

    def handle_endtag(self, tag: str) -> None:
        if self._closed and self._closed[-1] == tag:
            self._closed.pop()

    def handle_data(self, data: str) -> None:
        if not self._closed and data.strip():
            self.found.append(" ".join(data.split()))


_UNREAD = ("script", "style", "code", "pre", "time", "option", "textarea", "svg")
_READ = ("aria-label", "title", "placeholder", "data-name")
# Three English words, of which the last two are in lower case: a sentence, not a name.
_ENGLISH = re.compile(r"\b[A-Za-z][a-z’']+ [a-z’']+ [a-z’']{2,}\b")
_BADGE = re.compile(r'class="badge [^"]*"[^>]*>([^<]+)<')
# Texts in the scene that users or engines wrote.
_DATA = re.compile(
    r"whole-\w+|manage\.py\S*|Source: [\w ()-]+|Sink: [\w ()-]+|(java|org\.apache)\.\S+|aggregate by aircraft and route"
    r"|incident_url|\{[{%].*?[%}]\}|ConnectionRefusedError in the sink, task 2"
)
# Sent messages, which are in the language of their channel.
_SENT = re.compile(r"(\[opened\] )?4 checkpoints of  failed within 15 min .*")
# No pages, pages whose addresses the test writes itself, and the documentation, which is in English.
_NO_PAGE = re.compile(
    r"^api/|\.json|\.csv|\.<slug:form>|\.yaml|healthz|^health$|metrics|oidc|mail/<|<slug:kind>|^documentation/"
)
_PAGES = [
    route
    for route, methods_of in sorted(PERMISSIONS.items())
    if re.search(r"GET (viewer|operator|admin|open)", methods_of) and not _NO_PAGE.search(route)
]


@pytest.fixture
def reader(db: None, redis_url: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    settings.CELERY_BROKER_URL = redis_url
    with broker.connect() as redis:
        for number in (1, 2):
            monkeypatch.setattr(broker, "process_name", lambda number=number: f"waymark-{number}:412{number}")
            broker.write_heartbeat(redis, "beat", leads=number == 1)
            broker.write_heartbeat(redis, "worker", threads=4, taken=100)
        yield _in_chinese()
        redis.flushall()


def _in_chinese() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("anna"))
    client.cookies["django_language"] = "zh-hans"
    return client


def test_chinese_pages_have_no_english_sentence(reader: Client, now: datetime) -> None:
    ids = rows_of_every_kind(now, "whole").ids
    left = {}
    addresses = [address_of(route, ids) for route in _PAGES] + [f"/rules/new/{name}/" for name in kinds()]
    for address in [*addresses, "/channels/add/mail/", "/channels/add/webhook/", "/channels/add/apprise/"]:
        response = reader.get(address)
        if response.status_code != 200 or "html" not in response.headers["Content-Type"]:
            continue
        page, shown = _Sentences(), response.content.decode()
        page.feed(shown)
        ours = [_DATA.sub("", text) for text in page.found]
        if address.startswith(("/messages/", "/channels/")):
            ours = [text for text in ours if not _SENT.fullmatch(text)]
        ours += [f"badge: {word}" for word in _BADGE.findall(shown) if re.search("[a-z]{2}", word)]
        if english := [text for text in ours if _ENGLISH.search(text) or text.startswith("badge: ")]:
            left[address] = english
    assert left == {}, "\n".join(f"{page}: {texts}" for page, texts in left.items())


def test_refusal_page_is_chinese(db: None) -> None:
    client = Client()
    client.force_login(User.objects.create_user("viewer"))
    client.cookies["django_language"] = "zh-hans"
    refused = client.get("/clusters/add/")
    assert refused.status_code == 403
    assert '<html lang="zh-hans"' in refused.content.decode()
    assert "只有管理员可以执行此操作" in refused.content.decode()
