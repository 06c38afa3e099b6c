"""The only tags and filters that a template of a channel's own may use; Django's own ones, by name."""

from __future__ import annotations

from django.template import Library, defaultfilters, defaulttags

register = Library()
register.tag("if", defaulttags.do_if)
register.tag("for", defaulttags.do_for)
for _name in ("default", "date", "first", "join", "length", "lower", "pluralize", "truncatechars", "upper"):
    register.filters[_name] = defaultfilters.register.filters[_name]
