"""Every package that the product imports is declared, and the locked versions are those that are declared."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("checkpointing", "monitoring", "dashboard")
FOR_TYPES_ONLY = {"django-stubs-ext"}


def declared() -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [Requirement(text) for text in project["dependencies"]]
    return {canonicalize_name(each.name): each for each in found}


def imported() -> set[str]:
    """Return the top-level names that the product imports, without the standard library and its own."""
    names = {name for package in PRODUCT for file in (ROOT / package).rglob("*.py") for name in imports_of(file)}
    return names - set(sys.stdlib_module_names) - set(PRODUCT)


def imports_of(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.split(".")[0]


def test_every_package_that_is_imported_is_declared() -> None:
    distributions = packages_distributions()
    known = declared().keys() | FOR_TYPES_ONLY
    missing = {
        name for name in imported() if not {canonicalize_name(each) for each in distributions.get(name, [])} & known
    }
    assert missing == set()


def test_the_locked_versions_are_declared_ones() -> None:
    locked = dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    versions = {canonicalize_name(name): version for name, version in locked.items()}
    for name, requirement in declared().items():
        assert requirement.specifier.contains(versions[name], prereleases=True), requirement
