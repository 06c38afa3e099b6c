"""The pages of a job are completely in Chinese if the reader has selected Chinese, which a cookie stores."""

from __future__ import annotations

import gettext
import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils import translation

from dashboard.queries.activity import without_name
from dashboard.templatetags import figures
from monitoring.models import AlertRule, Checkpoint, Job
from tests.dashboard import builders as make

CATALOG = Path(settings.BASE_DIR) / "dashboard" / "locale" / "zh_Hans" / "LC_MESSAGES"
_QUOTED = r'(?:"(?:[^"\\]|\\.)*"\s*)+'
_ENTRY = re.compile(
    rf"^(?:msgctxt ({_QUOTED}))?msgid ({_QUOTED})(?:msgid_plural {_QUOTED})?msgstr(?:\[0\])? ({_QUOTED})", re.MULTILINE
)


def _text(quoted: str) -> str:
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', quoted)).replace('\\"', '"').replace("\\n", "\n")


def english_texts() -> list[str]:
    return [_text(key) for _, key, _ in _ENTRY.findall((CATALOG / "django.po").read_text())]


def test_catalog_is_complete_and_compiled() -> None:
    found = _ENTRY.findall((CATALOG / "django.po").read_text())
    entries = {(_text(context), _text(key)): _text(value) for context, key, value in found}
    del entries["", ""]
    assert len(entries) > 250
    assert [key for key, value in entries.items() if not value] == []
    with (CATALOG / "django.mo").open("rb") as compiled:
        catalog = gettext.GNUTranslations(compiled)
    assert [key for key, value in entries.items() if value not in _translations(catalog, *key)] == []


def _translations(catalog: gettext.GNUTranslations, context: str, key: str) -> tuple[str, ...]:
    return (catalog.pgettext(context, key),) if context else (catalog.gettext(key), catalog.ngettext(key, key, 2))


def test_every_placeholder_survives_the_translation() -> None:
    for _, key, value in _ENTRY.findall((CATALOG / "django.po").read_text()):
        names = re.compile(r"%\(\w+\)s")
        if _text(key):
            assert sorted(names.findall(_text(key))) == sorted(names.findall(_text(value))), _text(key)


@pytest.fixture
def job(db: None, now: datetime) -> Job:
    job = make.make_job(make.make_cluster(now))
    first = make.make_run(job, now, age=timedelta(hours=2), state="FAILED", ended_at=now - timedelta(hours=1))
    make.make_checkpoints(first, now - timedelta(hours=1), make.Shape(count=3))
    make.make_operators(make.make_checkpoints(make.make_run(job, now), now, make.Shape(count=5, first_id=4)))
    return job


def test_the_language_is_chosen_in_the_head_and_stays(viewer: Client, job: Job) -> None:
    address = reverse("job-history", args=[job.pk])
    assert '<html lang="en"' in viewer.get(address).content.decode()
    chosen = viewer.post(reverse("set_language"), {"language": "zh-hans", "next": address})
    assert chosen.headers["Location"] == address
    page = viewer.get(address).content.decode()
    assert '<html lang="zh-hans"' in page
    assert '<button name="language" value="en" lang="en">English</button>' in page
    assert ">历史</a>" in page
    viewer.post(reverse("set_language"), {"language": "en", "next": address})
    assert '<html lang="en"' in viewer.get(address).content.decode()


@pytest.mark.parametrize("nonsense", ["tlh", "../..", ""])
def test_an_unknown_language_is_english(viewer: Client, job: Job, nonsense: str) -> None:
    viewer.cookies[settings.LANGUAGE_COOKIE_NAME] = nonsense
    assert '<html lang="en"' in viewer.get(reverse("job", args=[job.pk])).content.decode()


# Some texts that each page must have.
PAGES = {
    "job": ["最近的检查点", "各类型最新", "各阶段的检查点耗时", "最近检查点"],
    "job-history": ["8 个检查点", "端到端耗时", "已完成", "开始于"],
    "job-summary": ["检查点统计", "最大", "平均", "各次运行的统计"],
    "job-configuration": ["检查点模式", "精确一次", "状态后端"],
    "job-state": ["状态内容"],
    "job-exceptions": ["没有异常"],
    "job-compare": ["比较"],
}


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_of_a_job_are_chinese(viewer: Client, job: Job, name: str) -> None:
    viewer.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    page = viewer.get(reverse(name, args=[job.pk])).content.decode()
    for text in PAGES[name]:
        assert text in page, text
    headings = re.findall(r"<th scope=\"col\"[^>]*>(?:<span[^>]*>)?([^<]+)", page)
    assert [each for each in headings if re.fullmatch(r"[A-Za-z ,]{4,}", each)] == []


def test_a_checkpoints_page_is_chinese(viewer: Client, job: Job) -> None:
    viewer.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    checkpoint = Checkpoint.objects.filter(run__number=2).latest("checkpoint_id")
    page = viewer.get(reverse("checkpoint", args=[checkpoint.pk])).content.decode()
    for text in ("检查点 8", "各子任务耗时", "启动延迟", "算子与子任务", "写入大小"):
        assert text in page, text


def test_times_are_in_the_selected_language(now: datetime) -> None:
    with translation.override("zh-hans"):
        assert "5 分钟前" in str(figures.ago(now - timedelta(minutes=5, milliseconds=1)))
        assert "月" in str(figures.clock(now - timedelta(days=3)))


def test_only_names_that_waymark_gave_to_rules_are_translated() -> None:
    with translation.override("zh-hans"):
        names = [figures.rule_name(AlertRule(name=name)) for name in ("Job failed", "critical", "")]
        former = figures.rule_name(AlertRule(name="Waymark itself blind"))
    assert [*names, former] == ["作业失败", "critical", "", "Waymark 停止轮询"]


def test_the_name_of_the_subject_is_left_out_in_the_order_of_the_language() -> None:
    english, chinese = "3 checkpoints of flights failed.", "flights 连续 3 个检查点失败。"
    assert [without_name(text, "flights") for text in (english, chinese)] == ["3 checkpoints failed.", chinese]
    with translation.override("zh-hans"):
        assert [without_name(text, "flights") for text in (english, chinese)] == [english, "连续 3 个检查点失败。"]


def test_yes_and_no_are_translated_in_evidence() -> None:
    assert figures.evidence_text(True) == "yes"
    with translation.override("zh-hans"):
        assert figures.evidence_text(False) == "否"
