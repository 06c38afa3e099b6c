"""The features of an engine by its version."""

from __future__ import annotations

import pytest

from monitoring.engine.versions import EngineVersion


@pytest.mark.parametrize(
    ("version", "capability", "can"),
    [
        ("1.15.4", "trigger_checkpoint", False),
        ("1.16.3", "trigger_checkpoint", False),
        ("1.17.0", "trigger_checkpoint", True),
        ("2.3.0", "trigger_checkpoint", True),
        ("1.20.5", "root_exception", True),
        ("2.0.0", "root_exception", False),
        ("1.9", "job_status", False),  # versions are compared as numbers
        ("10.1", "job_status", True),
        ("2.4-SNAPSHOT", "run_application", True),
        ("waymark-0.1.0", "trigger_checkpoint", True),
        ("waymark-0.1.0", "run_application", False),
        ("custom", "trigger_checkpoint", True),
    ],
)
def test_a_version_decides(version: str, capability: str, can: bool) -> None:
    assert EngineVersion.parse(version).can(capability) is can


def test_missing_features_are_listed_as_text() -> None:
    assert EngineVersion.parse("1.16.3").lacks() == [
        "manual checkpoints (/jobs/:id/checkpoints)",
        "configuration for a single start (flinkConfiguration)",
        "changing the parallelism of a running job (resource-requirements)",
    ]
    assert EngineVersion.parse("2.3.0").lacks() == []
    assert EngineVersion.parse("waymark-0.1.0").lacks() == []
