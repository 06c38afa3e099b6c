"""Check the declared dependencies.

Every package that the product imports is declared. The locked versions match the declared ones. A Waymark that only
monitors Flink needs no extra.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dashboard.stack.extras import EXTRAS
from tests.import_graph import PRODUCT, ROOT, below, foreign, modules, reached

FOR_TYPES_ONLY = {"django-stubs-ext"}
OF_EXTRAS = {f"dashboard.management.commands.{name}" for name in ("archive", "jobmanager", "mailsink", "state")}
# The entry modules of web server, worker, beat and commands, and the packages whose modules are imported by name.
CORE = [
    *("dashboard.settings", "dashboard.apps", "monitoring.apps", "monitoring.models"),
    *("dashboard.urls", "dashboard.wsgi", "dashboard.web_server", "dashboard.middleware", "dashboard.templating"),
    *("dashboard.celery", "dashboard.stack.celery_app", "dashboard.beat.scheduler", "monitoring.tasks"),
    *("dashboard.stack.setup", *below("monitoring.migrations"), *below("dashboard.templatetags")),
    *(*below("monitoring.alerts.kinds"), *below("monitoring.diagnosis.signs")),
    *(command for command in below("dashboard.management.commands") if command not in OF_EXTRAS),
]
# Modules that are imported only where their extra is known to be installed.
OPTIONAL = {"monitoring.kubernetes.client"}


@cache
def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def by_name(texts: Iterable[str]) -> dict[str, Requirement]:
    return {canonicalize_name(each.name): each for each in map(Requirement, texts)}


def core() -> dict[str, Requirement]:
    return by_name(project()["dependencies"])


def extras() -> dict[str, dict[str, Requirement]]:
    """Return the requirements of each extra, except `all`, which consists of the others."""
    declared = project()["optional-dependencies"]
    return {name: by_name(texts) for name, texts in declared.items() if name != "all"}


def declared() -> dict[str, Requirement]:
    return core() | {name: requirement for extra in extras().values() for name, requirement in extra.items()}


def locked(file: str) -> dict[str, Requirement]:
    """Return the packages of a lock file, each with its one version."""
    return by_name(re.findall(r"^(\w[\w.-]*(?:\[.*\])?==[^\s;\\]+)", (ROOT / file).read_text(), re.MULTILINE))


def requirements_of(package: Requirement) -> Iterator[Requirement]:
    """Yield what an installed `package` needs on this machine with its extras."""
    try:
        texts = requires(package.name) or []
    except PackageNotFoundError:  # a package for another system
        return
    for needed in map(Requirement, texts):
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in {"", *package.extras}):
            yield needed


def imported() -> set[str]:
    """Return the top-level names that the product imports, without the standard library and its own."""
    names = {name for file in modules().values() for name in imports_of(file)}
    return names - set(sys.stdlib_module_names) - set(PRODUCT)


def imports_of(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.split(".")[0]


distributions = cache(packages_distributions)


def packages_of(module: str) -> set[str]:
    """Return the packages that provide the top-level `module`."""
    return {str(canonicalize_name(each)) for each in distributions().get(module, [])}


def reached_by_core() -> dict[str, tuple[str, ...]]:
    return {module: chain for module, chain in reached(CORE).items() if OPTIONAL.isdisjoint(chain)}


def breaches(chains: dict[str, tuple[str, ...]]) -> list[str]:
    """Return the chains of imports that end in a package that the core does not declare."""
    known = core().keys() | FOR_TYPES_ONLY
    return [
        " → ".join((*chain, package))
        for module, chain in chains.items()
        for package in sorted(foreign(module))
        if not packages_of(package) & known
    ]


def test_every_package_that_is_imported_is_declared() -> None:
    known = declared().keys() | FOR_TYPES_ONLY
    assert {name for name in imported() if not packages_of(name) & known} == set()


def test_the_locked_versions_are_declared_ones() -> None:
    packages = locked("requirements.txt")
    assert project()["name"] not in packages, "PyPI's package of this name is another project"
    for name, requirement in declared().items():
        [version] = packages[name].specifier
        assert requirement.specifier.contains(version.version, prereleases=True), requirement


def test_the_lock_files_name_the_extras_of_packages() -> None:
    """pip before 23.3 does not find the version of `name[extra]` in a line `name==version`.

    It takes the newest one, and then refuses it because its hash is not listed.
    """
    for file in ("requirements.txt", "requirements-dev.txt"):
        packages = locked(file)
        for package in packages.values():
            for needed in requirements_of(package):
                if needed.extras and (found := packages.get(canonicalize_name(needed.name))):
                    assert needed.extras <= found.extras, f"{file}: {package.name} needs {needed}"


def test_each_package_is_declared_once_and_all_names_every_extra() -> None:
    names = [name for group in (core(), *extras().values()) for name in group]
    assert len(names) == len(set(names))
    [everything] = map(Requirement, project()["optional-dependencies"]["all"])
    assert (everything.name, everything.extras) == (project()["name"], extras().keys())


def test_the_product_knows_the_packages_of_each_extra() -> None:
    known = {extra.name: {canonicalize_name(package.name) for package in extra.packages} for extra in EXTRAS}
    assert known == {name: set(packages) for name, packages in extras().items()}
    assert all(package.extra == extra.name and package.is_installed for extra in EXTRAS for package in extra.packages)


def test_the_core_imports_no_package_of_an_extra() -> None:
    assert breaches(reached_by_core()) == []


def test_a_command_of_an_extra_can_be_imported_without_it() -> None:
    assert breaches(reached(OF_EXTRAS, lazily=False)) == []


def test_a_breach_is_reported_with_the_chain_of_imports() -> None:
    chains = reached(["dashboard.management.commands.state"])
    assert "dashboard.management.commands.state → checkpointing.state_reading.contents → checkpointing.state → " in str(
        breaches(chains)
    )


IMPORT_ALL = """\
import importlib, sys

class NotInstalled:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, NotInstalled)
import django
django.setup()
for module in {modules}:
    importlib.import_module(module)
import dashboard.wsgi
"""


def test_the_core_runs_where_no_extra_is_installed() -> None:
    absent = [package.module for extra in EXTRAS for package in extra.packages]
    code = IMPORT_ALL.format(absent=absent, modules=sorted(reached_by_core()))
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "dashboard.settings"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
