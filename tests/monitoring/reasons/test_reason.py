"""A reason is a value with arguments. It is compared by them, stored as JSON, and rendered only for a reader."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.conf import settings
from django.utils.translation import gettext, ngettext, override

from monitoring.marking import Plural, plural
from monitoring.reasons.reason import FORMS, JOINED, SOURCE, Reason, ReasonCode, codes, from_json, render

AT = datetime(2026, 5, 3, 4, 5, 6, tzinfo=UTC)


class Example(ReasonCode):
    LATE = "test.late", "{job} is late by {length:length}, since {since:minute}"
    BECAUSE = "test.because", "{what} because {why}."
    NAMES = "test.names", "{names} and {count:,} more"
    FILES = "test.files", plural("one file of {all}", "{count} files of {all}", "count"), "test.one-file"


def late(**changed: object) -> Reason:
    return Example.LATE(**({"job": "orders", "length": timedelta(minutes=90), "since": AT} | changed))


def test_a_reason_is_rendered_in_english_with_its_arguments() -> None:
    assert str(late()) == "orders is late by 1 h 30 min, since 2026-05-03 04:05 UTC"


def test_a_reason_within_a_reason_is_part_of_its_text() -> None:
    reason = Example.BECAUSE(what="It waits", why=late())

    assert str(reason) == "It waits because orders is late by 1 h 30 min, since 2026-05-03 04:05 UTC."


@pytest.mark.parametrize(("count", "text"), [(1, "one file of 9"), (1.0, "one file of 9"), (0, "0 files of 9")])
def test_a_number_chooses_the_form_of_a_text(count: float, text: str) -> None:
    assert str(Example.FILES(count=count, all=9)) == text


def test_a_stored_code_of_an_earlier_version_for_the_number_one_is_read_as_the_present_one() -> None:
    assert from_json({"code": "test.one-file", "args": {"all": 9}}) == Example.FILES(count=1, all=9)
    assert from_json({"code": "test.files", "args": {"all": 9}}) is None


def test_a_list_is_shown_with_commas() -> None:
    assert str(Example.NAMES(names=["a", "b"], count=1200)) == "a, b and 1,200 more"


def test_a_list_of_sentences_has_no_commas() -> None:
    class Several(ReasonCode):
        LISTS = "test.lists", "{what:sentences} {why:clauses}"

    reason = Several.LISTS(what=[Example.BECAUSE(what=name, why="so") for name in "ab"], why=["c", "d"])

    assert str(reason) == "a because so. b because so. c; d"


def test_a_sentence_within_a_sentence_has_no_full_stop() -> None:
    class Failed(ReasonCode):
        FAILED = "test.failed", "It failed: {why:clause}!"

    assert str(Failed.FAILED(why=Example.BECAUSE(what="a", why="b"))) == "It failed: a because b!"
    assert str(Failed.FAILED(why="It is gone.")) == "It failed: It is gone!"


def test_reasons_are_equal_by_code_and_arguments() -> None:
    assert late() == late()
    assert late() != late(job="payments")
    assert Example.BECAUSE(what="a", why=late()) != Example.BECAUSE(what="a", why=late(since=AT + timedelta(hours=1)))


@pytest.mark.parametrize("args", [{"job": "orders"}, {"job": "a", "length": 1, "since": AT, "more": 1}])
def test_a_missing_or_unknown_argument_is_refused(args: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="needs the arguments"):
        Example.LATE(**args)


def test_two_codes_cannot_be_the_same() -> None:
    with pytest.raises(ValueError, match=r"two reasons have the code 'test\.late'"):

        class Another(ReasonCode):
            LATE = "test.late", "something else"


def test_json_keeps_a_reason() -> None:
    reason = Example.BECAUSE(what="a", why=Example.NAMES(names=["x", late()], count=3))

    assert reason.as_json()["code"] == "test.because"
    assert from_json(reason.as_json()) == reason


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        {},
        {"code": "test.gone", "args": {}},
        {"code": "test.late", "args": None},
        {"code": "test.late", "args": {"job": "a"}},
        {"code": "test.because", "args": {"what": "a", "why": {"code": "test.gone", "args": {}}}},
        {"code": "test.names", "args": {"names": [{"code": "test.gone", "args": {}}], "count": 1}},
    ],
)
def test_a_code_without_a_text_in_this_release_is_not_a_reason(value: object) -> None:
    assert from_json(value) is None


def test_a_text_of_an_earlier_version_is_rendered_unchanged() -> None:
    assert render("It was so.", "zh-hans") == "It was so."


def test_a_time_keeps_its_zone() -> None:
    at = AT.astimezone(timezone(timedelta(hours=2), "X"))

    assert str(late(since=at)).endswith("since 2026-05-03 06:05 UTC+02:00")


LANGUAGES = [code for code, _ in settings.LANGUAGES if code != SOURCE]
OWN = [code for code in codes() if not type(code).__module__.startswith("tests.")]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("code", OWN, ids=str)
def test_every_code_has_a_text_in_every_language(code: ReasonCode, language: str) -> None:
    text, counted = (code.text.several, code.text.argument) if isinstance(code.text, Plural) else (code.text, None)
    for number in (1, 2):
        with override(language):
            translated = ngettext(*code.text[:2], number) if isinstance(code.text, Plural) else gettext(code.text)

        assert translated != text or not re.search("[a-z]{3}", re.sub(r"\{[^}]*\}", "", text)), "not translated"
        assert {name for name, _ in places(translated)} == code.names
        args = {name: number if name == counted else example_of(form) for name, form in places(text)}
        for language_of_reader in (SOURCE, language):
            assert render(code(**args), language_of_reader)


@pytest.mark.parametrize("code", [code for code in OWN if isinstance(code.text, Plural)], ids=str)
def test_the_forms_of_a_code_differ_and_name_the_number(code: ReasonCode) -> None:
    assert isinstance(code.text, Plural)
    assert code.text.one != code.text.several
    assert code.text.argument in code.names
    assert code.names >= {name for name, _ in places(code.text.one)} >= code.names - {code.text.argument}


def places(text: str) -> list[tuple[str, str]]:
    return re.findall(r"\{(\w+):?([^}]*)\}", text)


def example_of(form: str) -> object:
    """Return an argument that can be rendered in this form."""
    if form in ("length", "milliseconds", "bytes"):
        return 3
    if form == "cron":
        return "0 3 * * *"
    if form in FORMS:
        return AT
    if form in JOINED:
        return ["example"]
    return 3 if form not in ("", "clause") else "example"
