"""PySpark 4.3's errors about incompatible state are translated into clear ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointing.spark.plan import Sink, query_plan
from checkpointing.spark.query_plan import QueryPlan
from checkpointing.spark.state_mismatch import state_mismatch_message

OPERATORS = (
    "StateStoreSave [value#0], state info [ checkpoint = c, runId = x, opId = {}, ver = 0, numPartitions = 2], Update\n"
)
SCHEMA = (
    "[STATE_STORE_{part}_SCHEMA_NOT_COMPATIBLE] Provided {low} schema does not match existing state {low} schema.\n"
    "Please check number and type of fields.\n"
    "Existing {low}_schema={stored} and new {low}_schema={new}.\n"
    "If you want to force running the query without schema validation, please set x to false."
)


def plan(*operators: int) -> QueryPlan:
    return query_plan("words", "".join(OPERATORS.format(number) for number in operators), Sink("noop", None), {})


def keep_schema(location: Path, operator: int, key: str, value: str) -> None:
    """Write an operator's schema file as Spark does: JSON between lengths."""
    path = location / f"state/{operator}/0/_metadata/schema"
    path.parent.mkdir(parents=True)
    schemas = ['{"type":"struct","fields":[{"name":"%s","type":"string","nullable":true,"metadata":{}}]}'] * 2
    parts = [(schema % name).encode() for schema, name in zip(schemas, (key, value), strict=True)]
    path.write_bytes(b"\x00\x02v2" + b"".join(b"\x00\x00\x00\x01\x00\xff" + part for part in parts))


def message(part: str, stored: str, new: str) -> str:
    return SCHEMA.format(part=part, low=part.lower(), stored=stored, new=new)


def test_the_operator_and_both_keys_are_named(tmp_path: Path) -> None:
    keep_schema(tmp_path, 0, "user", "count")
    keep_schema(tmp_path, 1, "word", "sum")
    stored = "StructType(StructField(word,StringType,true))"
    new = "StructType(StructField(word,StringType,true),StructField(at,ArrayType(DecimalType(10,2),true),true))"
    text = state_mismatch_message(message("KEY", stored, new), plan(0, 1), tmp_path)
    assert text is not None
    assert text.startswith(
        "The restored state of 'aggregate (stateStoreSave)' in query 'words' does not fit the program: "
        "its key is (word: string), the program's is (word: string, at: array(decimal(10,2),true)). Restore it with"
    )
    assert " or 'aggregate" not in text, "the operator is known by its stored key"


def test_all_operators_are_named_if_the_right_one_is_unknown(tmp_path: Path) -> None:
    stored, new = "StructType(StructField(n,LongType,true))", "StructType(StructField(n,DoubleType,true))"
    text = state_mismatch_message(message("VALUE", stored, new), plan(0, 1), tmp_path)
    assert text is not None
    assert "of 'aggregate (stateStoreSave)' or 'aggregate (stateStoreSave)' in query" in text
    assert "its value is (n: long), the program's is (n: double)" in text


@pytest.mark.parametrize(
    ("stored", "new", "words"),
    [
        (
            "(OperatorId: 0 -> OperatorName: stateStoreSave)",
            "(OperatorId: 0 -> OperatorName: stateStoreSave), (OperatorId: 1 -> OperatorName: dedupe)",
            "of stateStoreSave (operator 0); the program has stateStoreSave (operator 0) and dedupe (operator 1)",
        ),
        (
            "(OperatorId: 0 -> OperatorName: stateStoreSave)",
            "",
            "is that of stateStoreSave (operator 0); the program has no stateful operator.",
        ),
    ],
)
def test_operators_that_differ_are_named(tmp_path: Path, stored: str, new: str, words: str) -> None:
    spark = (
        f"Stateful operators in the metadata: [{stored}]; Stateful operators in current batch: [{new}]. SQLSTATE: 42K03"
    )
    text = state_mismatch_message(spark, plan(), tmp_path)
    assert text is not None
    assert words in text


def test_other_failures_are_left_as_they_are(tmp_path: Path) -> None:
    assert state_mismatch_message("poison is not a word", plan(0), tmp_path) is None
