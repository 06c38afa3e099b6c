"""The table of signs: every module of this package that has `SIGNS` brings some."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from monitoring.diagnosis.signs.base import Sign


@cache
def signs() -> tuple[Sign, ...]:
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    return tuple(sign for module in modules for sign in getattr(module, "SIGNS", ()))
