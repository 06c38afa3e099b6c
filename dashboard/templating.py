"""Django's templates, which let go of what they were given as soon as the page is written.

Django leaves each context in a circle of references with its own layers, so that all of a page's rows wait for the
garbage collector: of a fleet of a thousand jobs eleven thousand objects, at each look of each reader.
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
