"""Mark texts for the catalogues in modules that the settings import."""

from __future__ import annotations

from typing import NamedTuple


def marked(text: str) -> str:
    """Return `text`.

    `gettext_noop` of Django does the same but reads the settings. While the settings are imported, this would leave
    them half read: later errors in them would not be reported.
    """
    return text


class Plural(NamedTuple):
    """A text in its two English forms, of which the number in `argument` chooses one."""

    one: str
    several: str
    argument: str


def plural(one: str, several: str, argument: str) -> Plural:
    """Return the forms of a text. Import it as `ngettext`, so that `makemessages` finds them."""
    return Plural(one, several, argument)
