"""The files under docs/ are pages, whole, and their links lead to pages and sections that exist."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from dashboard.documentation import as_html, documents, explained_codes

PAGES = sorted(documents())


def anchors(name: str) -> set[str]:
    return set(re.findall(r'id="([^"]+)"', as_html(name)[1]))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_html_without_left_over_markdown(name: str) -> None:
    title, html = as_html(name)
    prose = re.sub(r"<(pre|code)>.*?</\1>", "", html, flags=re.DOTALL)

    assert title
    assert "```" not in html
    assert not re.search(r"\| -|^[-*] |^\d+\. |^#|\]\(", prose, re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
def test_links_of_a_page_lead_to_existing_sections(name: str) -> None:
    for address in re.findall(r'<a href="([^"]+)"', as_html(name)[1]):
        parts = urlsplit(address)
        if not parts.scheme:
            target = parts.path.removeprefix("/documentation/").strip("/") or name
            assert target in PAGES
            assert not parts.fragment or parts.fragment in anchors(target), address


def test_a_code_of_a_reason_is_an_anchor() -> None:
    assert "recovery.backoff" in explained_codes() <= anchors("errors")
