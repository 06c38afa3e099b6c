"""Convert the pages in docs/ to HTML, so that an error text can link to the section that explains it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from django.conf import settings
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from markdown import Markdown

_LINK = re.compile(r'<a href="([^"]*)">(.*?)</a>', re.DOTALL)


@cache
def documents() -> dict[str, Path]:
    """Return the Markdown files by page name. The result is empty if this installation has no documentation."""
    return {path.stem: path for path in sorted((Path(settings.BASE_DIR) / "docs").glob("*.md"))}


@cache
def explained_codes() -> frozenset[str]:
    """Return the codes of reasons that docs/errors.md has an anchor for."""
    path = documents().get("errors")
    return frozenset(re.findall(r'<a id="([^"]+)">', path.read_text()) if path else ())


@cache
def as_html(name: str) -> tuple[str, SafeString]:
    """Return the title and the HTML of a page.

    Raises:
        KeyError: there is no such page.
    """
    source = documents()[name].read_text()
    converter = Markdown(
        extensions=["fenced_code", "tables", "toc"], extension_configs={"tables": {"use_align_attribute": True}}
    )
    html = _LINK.sub(_link, converter.convert(source))
    # A wide table scrolls on its own, also by keyboard.
    html = html.replace("<table>", '<div class="table-wrap" tabindex="0"><table>').replace("</table>", "</table></div>")
    return source.partition("\n")[0].removeprefix("# "), mark_safe(html)  # noqa: S308 - the files are part of the release


def _link(link: re.Match[str]) -> str:
    """Convert a link to a Markdown file to a link to its page. If the target is not a page, return only the text."""
    address, text = link[1], link[2]
    if re.match("https?://|#", address):
        return link[0]
    name, _, anchor = address.partition(".md")
    return f'<a href="{reverse("documentation", args=[name])}{anchor}">{text}</a>' if name in documents() else text
