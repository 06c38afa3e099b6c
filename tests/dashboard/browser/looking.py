"""Pages are looked at: on every screen and in both themes, each opened once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from django.utils import timezone
from playwright.sync_api import Page

from monitoring.models import Cluster, Run
from tests.dashboard.browser.conftest import Reader
from tests.dashboard.browser.keys import Keys

# From each to the next the theme changes: charts are drawn anew, for the new width, too.
VIEWS = (
    *(("wide", "light"), ("narrow", "dark"), ("middle", "light")),
    *(("wide", "dark"), ("narrow", "light"), ("middle", "dark")),
)
# These are read by axe as a whole.
EXTREMES = VIEWS[:2]
# What these do not show of colours, on the pages with the most on them.
COLOURS = VIEWS[3:5]


def poller_looked() -> None:
    """Just now, however slow the machine: else every page would rightly say that nobody watches any more."""
    now = timezone.now()
    Cluster.objects.filter(unreachable_since=None).update(last_answer_at=now)
    Run.objects.filter(job__cluster__unreachable_since=None).update(observed_at=now)


def look_at(
    reader: Reader,
    pages: Mapping[str, str],
    prefix: str = "",
    *,
    fullest: Collection[str] = (),
    settle: Callable[[Page, str], None] = lambda page, name: None,
) -> None:
    """Pictures of `pages`, by name, in every view, under var/test/. Nothing is wider than the screen, no table is cut
    off on a large one, nothing is for the mouse only, axe finds nothing serious, the console is silent. `fullest`:
    those with the most on them. `settle`: what a reader does on a page before."""
    found: dict[str, object] = {}
    for name, path in pages.items():
        poller_looked()
        reader.turn(*VIEWS[0])
        settle(reader.open(path), name)
        for view in VIEWS:
            reader.turn(*view)
            if problems := _problems(reader, f"{prefix}{name}", view, full=name in fullest):
                found[f"{name} {'-'.join(view)}"] = problems
    assert (reader.complaints, found) == ([], {}), (reader.complaints, found)


def _problems(reader: Reader, name: str, view: tuple[str, str], *, full: bool) -> list[str]:
    wider = reader.overflow()
    problems = [f"wider than its window by {wider} px"] if wider > 0 else []
    if view[0] != "narrow":
        problems += [f"{table} is cut off" for table in reader.cut()]
    reader.picture(f"{name}-{'-'.join(view)}")
    if view == VIEWS[0]:
        problems += [f"{part} is for the mouse only" for part in Keys(reader.page).mouse_only()]
    if view in EXTREMES:
        problems += reader.barriers()
    elif full and view in COLOURS:
        problems += reader.barriers("color-contrast")
    return problems
