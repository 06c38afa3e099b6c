"""Texts that name the reader's time zone. The middleware of sessions activates this zone."""

from __future__ import annotations

from datetime import timedelta

from django import forms
from django.utils import timezone
from django.utils.translation import gettext as _


def zone_name() -> str:
    """Return the name of the zone, such as `Asia/Shanghai`."""
    return str(timezone.get_current_timezone())


def zone_offset() -> str:
    """Return the current offset of the zone, such as `UTC`, `UTC+8` or `UTC+5:30`."""
    offset = timezone.localtime().utcoffset() or timedelta()
    if not offset:
        return "UTC"
    hours, minutes = divmod(abs(offset) // timedelta(minutes=1), 60)
    sign = "+" if offset > timedelta() else "\N{MINUS SIGN}"
    return f"UTC{sign}{hours}:{minutes:02}" if minutes else f"UTC{sign}{hours}"


def show_zone(field: forms.Field) -> None:
    """Add the zone to the label and the tooltip of a field for a date and a time."""
    field.label = _("%(label)s (%(zone)s)") % {"label": field.label, "zone": zone_offset()}
    field.widget.attrs["title"] = _("Time zone: %(zone)s") % {"zone": zone_name()}
