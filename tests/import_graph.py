"""The import graph of the product: the modules that a process can import, given the modules with which it starts."""

from __future__ import annotations

import ast
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("checkpointing", "monitoring", "dashboard")


@dataclass(frozen=True)
class Import:
    """An import of a module, or of a name in it.

    `name` is the absolute dotted name. With `is_lazy`, the import is inside a function.
    """

    name: str
    is_lazy: bool


@cache
def modules() -> dict[str, Path]:
    """Return the file of each module of the product."""
    files = [file for package in PRODUCT for file in sorted((ROOT / package).rglob("*.py"))]
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def below(package: str) -> list[str]:
    """Return the modules below a package, for packages whose modules are imported by a pattern of names."""
    return [module for module in modules() if module.startswith(f"{package}.")]


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    """Return the imports of a module at runtime, without the imports for type checking only."""
    file = modules()[module]
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    return tuple(_found(ast.parse(file.read_text()).body, package, is_lazy=False))


def _found(nodes: Iterable[ast.AST], package: str, *, is_lazy: bool) -> Iterator[Import]:
    for node in nodes:
        match node:
            case ast.Import():
                yield from (Import(alias.name, is_lazy) for alias in node.names)
            case ast.ImportFrom():
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                yield from (Import(f"{base}.{alias.name}", is_lazy) for alias in node.names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from _found(node.orelse, package, is_lazy=is_lazy)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from _found(ast.iter_child_nodes(node), package, is_lazy=True)
            case _:
                yield from _found(ast.iter_child_nodes(node), package, is_lazy=is_lazy)


def reached(entries: Iterable[str], *, lazily: bool = True) -> dict[str, tuple[str, ...]]:
    """Return each module that `entries` import directly or indirectly, with the chain of imports from an entry.

    With `lazily`, imports inside functions count too.
    """
    chains: dict[str, tuple[str, ...]] = {entry: (entry,) for entry in entries}
    waiting = deque(chains)
    while waiting:
        module = waiting.popleft()
        for each in imports_of(module):
            if each.is_lazy and not lazily:
                continue
            for found in _with_packages(each.name):
                if found not in chains:
                    chains[found] = (*chains[module], found)
                    waiting.append(found)
    return chains


def _with_packages(name: str) -> Iterator[str]:
    """Return the module of `name`, and the packages that Python imports before this module."""
    parts = name.split(".")
    return (part for part in (".".join(parts[:n]) for n in range(1, len(parts) + 1)) if part in modules())


def foreign(module: str) -> set[str]:
    """Return the top-level names of third-party packages that the module imports at its own import."""
    names = {each.name.split(".")[0] for each in imports_of(module) if not each.is_lazy}
    return names - set(sys.stdlib_module_names) - set(PRODUCT)
