"""Read JSON answers strictly: a value has the right type and range, or Malformed names the field.

Unknown fields are ignored. Flink's spellings of a missing value (-1, the string "NaN", 2^63-1) become None.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import orjson

from monitoring.engine.errors import Malformed
from monitoring.reasons.engines import EngineReason
from monitoring.reasons.reason import Reason

LONG_MAX = 2**63 - 1
_YEAR_9999 = 253_402_300_799_000
_DEEPEST = 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Fields:
    """One JSON object of an answer.

    `where` is its place for error texts: a text, or the parent with the field's name and, in a list, the index.
    """

    __slots__ = ("_where", "raw")

    def __init__(self, value: object, where: str | tuple[Fields, str] | tuple[Fields, str, int]) -> None:
        self._where = where
        if not isinstance(value, dict):
            raise Malformed(_wrong_type(self.where, value, EngineReason.OBJECT))
        self.raw: dict[str, Any] = value

    @property
    def where(self) -> str:
        """Return the place as text. It is built only for an error, because most answers have none."""
        if isinstance(self._where, str):
            return self._where
        parent, name, *index = self._where
        return f"{parent.where}.{name}" + "".join(f"[{each}]" for each in index)

    def _fail(self, name: str, expected: EngineReason) -> Malformed:
        if name not in self.raw:
            return Malformed(EngineReason.FIELD_MISSING(where=self.where, name=name))
        return Malformed(_wrong_type(f"{self.where}.{name}", self.raw[name], expected))

    def _out_of_range(self, name: str) -> Malformed:
        return Malformed(EngineReason.OUT_OF_RANGE(where=f"{self.where}.{name}"))

    def storable(self) -> dict[str, Any]:
        """Return the raw object, to be stored as JSON. Raise Malformed if it is nested too deeply for a database."""
        _check_depth(self.raw, self.where, _DEEPEST)
        return self.raw

    def raw_values(self, names: tuple[str, ...]) -> tuple[object, ...]:
        """Return the raw values of the fields `names`, to be compared with an earlier answer."""
        return tuple(map(self.raw.get, names))

    def is_one_of(self, name: str, numbers: Collection[int]) -> bool:
        value = self.raw.get(name)
        return type(value) is int and value in numbers

    def whole(self, name: str) -> int:
        value = self.raw.get(name)
        if type(value) is int and -LONG_MAX <= value <= LONG_MAX:  # excludes bool
            return value
        # The JSON parser reads a number that does not fit into 64 bits as a float.
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) > LONG_MAX:
            raise self._out_of_range(name)
        raise self._fail(name, EngineReason.WHOLE_NUMBER)

    def amount(self, name: str) -> int | None:
        """Return a size, duration or count, or None if the engine does not know it: absent, null or negative."""
        value = self.raw.get(name)
        if type(value) is int and 0 <= value <= LONG_MAX:  # fast path for nearly all values
            return value
        if value is None or self.whole(name) < 0:
            return None
        return self.whole(name)

    def number(self, name: str) -> float | None:
        """Return a number such as a rate, None if absent or null."""
        value = self.raw.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._fail(name, EngineReason.NUMBER)
        return float(value)

    def small(self, name: str) -> int:
        """Return a count that fits into a database's 32-bit integer, such as a number of subtasks."""
        value = self.whole(name)
        if not 0 <= value < 2**31:
            raise self._out_of_range(name)
        return value

    def text(self, name: str) -> str:
        value = self.raw.get(name)
        if not isinstance(value, str):
            raise self._fail(name, EngineReason.TEXT)
        return value

    def optional_text(self, name: str) -> str:
        return "" if self.raw.get(name) is None else self.text(name)

    def identifier(self, name: str, limit: int = 32) -> str:
        """Return an identifier that is safe as part of a path: ASCII letters and digits."""
        value = self.text(name)
        if not value or len(value) > limit or not value.isascii() or not value.isalnum():
            raise Malformed(EngineReason.NOT_AN_IDENTIFIER(where=f"{self.where}.{name}"))
        return value

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self.raw.get(name, default)
        if not isinstance(value, bool):
            raise self._fail(name, EngineReason.FLAG)
        return value

    def moment(self, name: str) -> datetime:
        value = self.optional_moment(name)
        if value is None:
            raise self._fail(name, EngineReason.TIME)
        return value

    def optional_moment(self, name: str) -> datetime | None:
        """Return the time of epoch milliseconds, None if absent or not positive."""
        value = self.amount(name)
        if not value:
            return None
        if value > _YEAR_9999:
            raise self._out_of_range(name)
        return _EPOCH + timedelta(milliseconds=value)

    def child(self, name: str) -> Fields:
        if name not in self.raw:
            raise self._fail(name, EngineReason.OBJECT)
        return Fields(self.raw[name], (self, name))

    def optional_child(self, name: str) -> Fields | None:
        return None if self.raw.get(name) is None else self.child(name)

    def children(self, name: str) -> list[Fields]:
        return [Fields(item, (self, name, index)) for index, item in enumerate(self._list(name))]

    def items(self, name: str) -> list[Callable[[], Fields]]:
        """Return a function for each item of the list, so that a malformed item raises only for itself."""
        return [partial(Fields, item, (self, name, index)) for index, item in enumerate(self._list(name))]

    def _list(self, name: str) -> list[object]:
        value = self.raw.get(name)
        if not isinstance(value, list):
            raise self._fail(name, EngineReason.LIST)
        return value

    def texts(self, name: str) -> list[str]:
        value = self.raw.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._fail(name, EngineReason.TEXTS)
        return value

    def named(self, name: str) -> dict[str, Fields]:
        """Return the children of an object whose keys are names."""
        child = self.child(name)
        return {key: Fields(value, (child, key)) for key, value in child.raw.items()}


def decode(body: bytes) -> object:
    """Return the parsed JSON. Characters that no database text can hold become U+FFFD. Raise Malformed."""
    try:
        # Only an escape can produce such a character. orjson rejects a lone surrogate, so it reads only other answers.
        if b"\\u" not in body:
            return orjson.loads(body)
        return _storable(json.loads(body, parse_constant=_no_constant, parse_float=_finite, parse_int=_integer))
    except (ValueError, RecursionError) as error:
        raise Malformed(EngineReason.NOT_JSON(error=str(error))) from error


def _no_constant(name: str) -> object:
    raise Malformed(EngineReason.NOT_JSON(error=EngineReason.NOT_A_NUMBER(text=name)))


def _check_depth(value: object, where: str, left: int) -> None:
    if left == 0:
        raise Malformed(EngineReason.TOO_DEEP(where=where, most=_DEEPEST))
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(child, where, left - 1)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise Malformed(EngineReason.NOT_JSON(error=EngineReason.NUMBER_TOO_LARGE(text=digits[:40])))
    return value


def _integer(digits: str) -> int | float:
    """Return the number as orjson does: a number beyond 64 bits becomes a float."""
    value = int(digits)
    return value if -(2**63) <= value < 2**64 else _finite(digits)


def _storable(value: Any) -> Any:
    match value:
        case str():
            return value.replace("\x00", "\ufffd").encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        case list():
            return [_storable(item) for item in value]
        case dict():
            return {_storable(key): _storable(item) for key, item in value.items()}
        case _:
            return value


def _wrong_type(where: str, value: object, expected: EngineReason) -> Reason:
    if value is None:
        return EngineReason.FIELD_NULL(where=where, expected=expected())
    return EngineReason.FIELD_TYPE(where=where, found=_type_of(value)(), expected=expected())


def _type_of(value: object) -> EngineReason:
    match value:
        case bool():
            return EngineReason.FLAG
        case int() | float():
            return EngineReason.NUMBER
        case str():
            return EngineReason.TEXT
        case list():
            return EngineReason.LIST
        case _:
            return EngineReason.OBJECT
