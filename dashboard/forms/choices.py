"""Translate the choices of models, which are in English, to the language of the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


def in_language(choices: Iterable[tuple[str, StrOrPromise]]) -> list[tuple[str, StrOrPromise]]:
    return [(value, gettext_lazy(str(label))) for value, label in choices]
