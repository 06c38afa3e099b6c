"""Check the documentation: every link has a target, and texts are short and in plain English."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Mentions of documentation pages in code and templates.
MENTION = re.compile(r"\b(docs/[\w/-]+\.md)(#[\w-]+)?")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
MOST_WORDS = 35_000


def tracked(*patterns: str) -> list[Path]:
    names = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.splitlines() if (ROOT / name).exists()]


PAGES = tracked("*.md")
DOCUMENTS = [page for page in PAGES if "tests" not in page.relative_to(ROOT).parts]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", CODE.sub("", page.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        repeated = sum(1 for each in found if re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", each))
        found.add(f"{anchor}-{repeated}" if repeated else anchor)
    return found


def broken(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    return not file.exists() or (bool(anchor) and file.suffix == ".md" and anchor not in anchors(file))


@pytest.mark.parametrize("document", PAGES, ids=name_of)
def test_every_link_leads_somewhere(document: Path) -> None:
    links = LINK.findall(CODE.sub("", document.read_text()))
    assert [link for link in links if "://" not in link and broken(document, link)] == []


def mentions() -> Iterator[tuple[Path, str]]:
    for file in tracked("*.py", "*.html", "Makefile", "pyproject.toml"):
        for path, anchor in MENTION.findall(file.read_text()):
            yield file, path + anchor


def test_every_page_that_code_names_exists() -> None:
    wrong = [(str(file.relative_to(ROOT)), link) for file, link in mentions() if broken(ROOT / "x", link)]
    assert wrong == []


def test_every_decision_that_code_names_exists() -> None:
    known = {int(path.name[:4]) for path in tracked("docs/decisions/0*.md")}
    named = {
        (str(file.relative_to(ROOT)), int(number))
        for file in tracked("*.py", "pyproject.toml")
        for number in re.findall(r"\bdecision (\d+)\b", file.read_text())
    }
    assert {(file, number) for file, number in named if number not in known} == set()


def test_every_decision_has_its_form_and_is_in_the_index() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for path in tracked("docs/decisions/0*.md"):
        text = path.read_text()
        assert re.match(rf"# {int(path.name[:4])}\. \S", text), path.name
        assert re.search(r"^Status: \w+ · Date: \d{4}-\d\d-\d\d", text, re.MULTILINE), path.name
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequences"], path.name
        assert f"({path.name})" in index, path.name


def test_the_pages_are_no_longer_than_a_newcomer_reads() -> None:
    pages = [page for page in PAGES if "decisions" not in page.parts and page.name != "CHANGELOG.md"]
    assert sum(len(page.read_text().split()) for page in pages) <= MOST_WORDS


PRIVATE_WORDS = re.compile(
    r"\b(deeds?|anew|whoever|whatever|mends?|glance|let go|lies in|goes on|of its own|in words)\b", re.IGNORECASE
)
LONGEST_SENTENCE = 32  # words


def prose(page: Path) -> str:
    """Return the text of a page without code blocks and headings, links as their texts, `code` as one word."""
    lines = (line for line in CODE.sub("", page.read_text()).splitlines() if not line.startswith(("    ", "#")))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", "\n".join(lines))
    return re.sub(r"`[^`]*`", "code", text)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_documentation_uses_no_private_words(document: Path) -> None:
    assert PRIVATE_WORDS.findall(prose(document)) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_no_sentence_is_too_long(document: Path) -> None:
    parts = re.split(r"\n\s*\n|\n[-*] |\n\d+\. |\||(?<=[.!?:;])\s+", prose(document))
    assert [part for part in parts if len(part.split()) > LONGEST_SENTENCE] == []
