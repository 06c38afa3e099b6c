"""Templates can be reviewed line by line, and pages use the words of the field."""

from __future__ import annotations

from tests.dashboard.test_language import english_texts
from tests.test_documentation import PRIVATE_WORDS, ROOT, tracked

LONGEST_LINE = 160
# Without the bodies of mails, in which line breaks are part of the text.
TEMPLATES = [path for path in tracked("templates/*.html") if "notify" not in path.parts]


def test_no_line_of_a_template_is_too_long() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in TEMPLATES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > LONGEST_LINE
    ]
    assert TEMPLATES
    assert long == []


def test_page_texts_use_the_words_of_the_field() -> None:
    assert [text for text in english_texts() if PRIVATE_WORDS.search(text)] == []
