"""Django's templates, changed so that they release their context as soon as the page is rendered.

In Django, a context and its layers reference each other, so all rows of a page stay in memory until the garbage
collector runs: 11,000 objects for each page of a fleet of 1,000 jobs.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.template import TemplateDoesNotExist
from django.template.backends import django as backend
from django.template.context import make_context
from django.utils.safestring import SafeString


class Template(backend.Template):
    def render(self, context: dict[str, Any] | None = None, request: HttpRequest | None = None) -> SafeString:
        given = make_context(context, request, autoescape=self.backend.engine.autoescape)
        try:
            return self.template.render(given)
        except TemplateDoesNotExist as missing:
            backend.reraise(missing, self.backend)
        finally:
            given.dicts.clear()


class DjangoTemplates(backend.DjangoTemplates):
    def get_template(self, template_name: str) -> Template:
        return Template(super().get_template(template_name).template, self)
