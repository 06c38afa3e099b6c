"""The paths in transformWithState's metadata are corrected after its files have moved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkpointing.checkpoint_location.schema_paths import relocate_schemas

SCHEMA = "state/0/_stateSchema/default/0_abc"


def metadata(location: Path, schema_path: str) -> Path:
    path = location / "state/0/_metadata/v2/0"
    path.parent.mkdir(parents=True)
    path.write_text("v2\n" + json.dumps({"stateStoreInfo": [{"stateSchemaFilePaths": [schema_path]}], "other": 1}))
    return path


@pytest.mark.parametrize("name", ["plain", "with a space", "job@cluster", "50%"])
def test_a_schema_is_found_in_a_moved_and_renamed_directory(tmp_path: Path, name: str) -> None:
    path = metadata(tmp_path / name, f"file:/where/it/was/{SCHEMA}")
    relocate_schemas(tmp_path / name)
    version, body = path.read_text().split("\n")
    assert version == "v2"
    assert json.loads(body) == {
        "stateStoreInfo": [{"stateSchemaFilePaths": [f"file:{tmp_path / name / SCHEMA}"]}], "other": 1,
    }  # fmt: skip


def test_a_path_that_does_not_name_a_state_schema_is_damage(tmp_path: Path) -> None:
    metadata(tmp_path, "file:/etc/passwd")
    with pytest.raises(ValueError, match="'file:/etc/passwd' is not the path of a state schema"):
        relocate_schemas(tmp_path)
