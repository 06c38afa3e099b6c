"""Mark texts for the catalogues in modules that the settings import."""

from __future__ import annotations


def marked(text: str) -> str:
    """Return `text`.

    `gettext_noop` of Django does the same but reads the settings. While the settings are imported, this would leave
    them half read: later errors in them would not be reported.
    """
    return text
