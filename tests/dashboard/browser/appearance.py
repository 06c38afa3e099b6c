"""Check pages in every size and both themes, and open each page only once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django.utils import timezone
from playwright.sync_api import Page

from monitoring.models import Cluster, Run
from tests.dashboard.browser.conftest import Reader
from tests.dashboard.browser.keys import Keys

# The theme changes from each view to the next, so charts are redrawn, also for the new width.
VIEWS = (
    *(("wide", "light"), ("narrow", "dark"), ("middle", "light")),
    *(("wide", "dark"), ("narrow", "light"), ("middle", "dark")),
)
# In these views, one of each size, axe checks all its rules. In the others only the colours differ.
EVERY_SIZE = VIEWS[:3]
# The views of the Chinese pages, whose texts have other widths.
CHINESE = VIEWS[:2]


def mark_as_polled() -> None:
    """Set the last poll to now, because on a slow machine the pages would report that the polling has stopped."""
    now = timezone.now()
    Cluster.objects.filter(unreachable_since=None).update(last_answer_at=now)
    Run.objects.filter(job__cluster__unreachable_since=None).update(observed_at=now)


def check_pages(
    reader: Reader,
    pages: Mapping[str, str],
    prefix: str = "",
    *,
    settle: Callable[[Page, str], None] = lambda page, name: None,
) -> None:
    """Store a screenshot of each page in every view and in Chinese under var/test/, and check the pages.

    No page is wider than the screen, no text is squeezed, and no table is clipped on a large screen. Everything is
    reachable by keyboard. Axe finds no problem, and the console is empty. `settle` is called on each English
    page first.
    """
    found: dict[str, object] = {}
    for name, path in pages.items():
        mark_as_polled()
        reader.turn(*VIEWS[0])
        settle(reader.open(path), name)
        for view in VIEWS:
            reader.turn(*view)
            if problems := _problems(reader, f"{prefix}{name}", view):
                found[f"{name} {'-'.join(view)}"] = problems
        reader.speak("zh-hans")
        reader.open(path)
        for view in CHINESE:
            reader.turn(*view)
            if problems := _problems(reader, f"{prefix}{name}-chinese", view):
                found[f"{name} in Chinese {'-'.join(view)}"] = problems
        reader.speak("en")
    assert (reader.complaints, found) == ([], {}), (reader.complaints, found)


def _problems(reader: Reader, name: str, view: tuple[str, str]) -> list[str]:
    wider = reader.overflow()
    problems = [f"wider than its window by {wider} px"] if wider > 0 else []
    problems += [f"no room for “{text}”" for text in reader.squeezed()]
    if view[0] != "narrow":
        problems += [f"{table} is cut off" for table in reader.cut()]
    reader.picture(f"{name}-{'-'.join(view)}")
    if view == VIEWS[0]:
        problems += [f"{part} is for the mouse only" for part in Keys(reader.page).mouse_only()]
    return problems + (reader.barriers() if view in EVERY_SIZE else reader.barriers("color-contrast"))
