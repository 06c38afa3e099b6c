"""The only tags and filters that a channel's template may use. They are Django's."""

from __future__ import annotations

from django.template import Library, defaultfilters, defaulttags

register = Library()
register.tag("if", defaulttags.do_if)
register.tag("for", defaulttags.do_for)
for _name in ("default", "date", "first", "join", "length", "lower", "pluralize", "truncatechars", "upper"):
    register.filters[_name] = defaultfilters.register.filters[_name]
