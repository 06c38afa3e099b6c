"""The three archived tables, and how each of their columns is stored.

Files are sorted so that rows that are read together are adjacent and differ little, which makes files small. Whole
numbers are stored as differences, paths as the prefix shared with the previous value and a rest, most other values by
dictionary. Everything is compressed (zstd).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Field

from monitoring.history.partitions import TABLES, PartitionedTable
from monitoring.models import ArchivedKind, Checkpoint, CounterSample, OperatorCheckpoint

_BY_TABLE = {table.name: table for table in TABLES}
_OF_RUN = "JOIN monitoring_run r ON r.id = k.run_id JOIN monitoring_job j ON j.id = r.job_id"
_OF_CHECKPOINT = (
    "JOIN monitoring_checkpoint c ON c.id = k.checkpoint_id AND c.triggered_at = k.triggered_at"
    " JOIN monitoring_run r ON r.id = c.run_id JOIN monitoring_job j ON j.id = r.job_id"
)
_DELTA, _PREFIX = "DELTA_BINARY_PACKED", "DELTA_BYTE_ARRAY"
# Text columns in which each value is nearly the same as the previous one.
_PATHS = ("external_path",)


@dataclass(frozen=True)
class Kind:
    """An archived table.

    `joins` is the SQL that joins its row `k` to its job `j`. `order` is the order of a file. Two rows with equal `same`
    are versions of one.
    """

    name: ArchivedKind
    model: type[models.Model]
    table: PartitionedTable
    joins: str
    order: tuple[str, ...]
    same: tuple[str, ...] = ("id",)

    @cached_property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[type-arg]
        return tuple(self.model._meta.concrete_fields)

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([(field.column, _type_of(field)) for field in self.fields])

    @cached_property
    def selected(self) -> str:
        """Return the columns for a statement that calls the row `k`. Times are microseconds since 1970."""
        return ", ".join(_expression(field) for field in self.fields)

    @cached_property
    def encodings(self) -> dict[str, str]:
        """Return the encodings of columns that are not stored by dictionary, by the column's name in the file."""
        return {name: found for field in self.schema for name, found in _encoding(field) if found}

    @cached_property
    def by_dictionary(self) -> list[str]:
        return [name for field in self.schema for name, found in _encoding(field) if not found]


KINDS: dict[ArchivedKind, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            ArchivedKind.CHECKPOINTS,
            Checkpoint,
            _BY_TABLE["monitoring_checkpoint"],
            _OF_RUN,
            ("run_id", "triggered_at", "id"),
            ("run_id", "checkpoint_id", "triggered_at"),
        ),
        Kind(
            ArchivedKind.OPERATORS,
            OperatorCheckpoint,
            _BY_TABLE["monitoring_operatorcheckpoint"],
            _OF_CHECKPOINT,
            ("checkpoint_id", "position", "id"),
        ),
        Kind(
            ArchivedKind.SAMPLES,
            CounterSample,
            _BY_TABLE["monitoring_countersample"],
            _OF_RUN,
            ("run_id", "at", "id"),
        ),
    )
}


def _type_of(field: Field) -> pa.DataType:  # type: ignore[type-arg]
    match field:
        case ArrayField():
            return pa.list_(_type_of(field.base_field))
        case models.DateTimeField():
            return pa.timestamp("us", "UTC")
        case models.BooleanField():
            return pa.bool_()
        case models.CharField() | models.TextField():
            return pa.string()
        case models.PositiveIntegerField() | models.PositiveSmallIntegerField():
            return pa.int32()
        case models.BigIntegerField() | models.BigAutoField() | models.ForeignKey():
            return pa.int64()
        case _:
            raise TypeError(f"column {field.column}: fields of {type(field).__name__} are not archived")


def _expression(field: Field) -> str:  # type: ignore[type-arg]
    column = f'k."{field.column}"'
    if isinstance(field, models.DateTimeField):
        return _micros(column)
    if isinstance(field, ArrayField) and isinstance(field.base_field, models.DateTimeField):
        return f"ARRAY(SELECT {_micros('e')} FROM unnest({column}) WITH ORDINALITY u (e, n) ORDER BY n)"  # noqa: S608
    return column


def _micros(column: str) -> str:
    return f"(extract(epoch FROM {column}) * 1000000)::bigint"


def _encoding(field: pa.Field) -> list[tuple[str, str]]:
    listed = pa.types.is_list(field.type)
    kind = field.type.value_type if listed else field.type
    leaf = f"{field.name}.list.element" if listed else field.name
    if field.name in _PATHS:
        return [(leaf, _PREFIX)]
    if pa.types.is_boolean(kind):
        return [(leaf, "RLE")]
    if pa.types.is_string(kind) or pa.types.is_int32(kind):
        return [(leaf, "")]
    return [(leaf, _DELTA)]
