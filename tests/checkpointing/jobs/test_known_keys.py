"""The known keys are exactly the keys that Waymark reads. User input is checked against them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checkpointing.jobs import local_recovery
from checkpointing.jobs.known_keys import DIRECTORY, KNOWN_KEYS, UnknownKey, check_keys, is_checked
from checkpointing.jobs.launch_queue import priority_of
from checkpointing.jobs.launching.admission import Demand
from checkpointing.jobs.launching.control_groups import limit_of
from checkpointing.jobs.launching.demand import demand_of
from checkpointing.jobs.launching.deployment import LauncherKind, deployment_of, launcher_of
from checkpointing.jobs.launching.kubernetes.configuration import IMAGE, PodConfiguration
from checkpointing.jobs.launching.python import python_of
from checkpointing.jobs.python_environments.source import EnvironmentSource
from checkpointing.jobs.restart import restart_strategy
from checkpointing.jobs.restore import ALLOW_EMPTY_START, StateRecovery, refuses_to_write_again
from checkpointing.model.configuration import CheckpointConfiguration, InvalidConfiguration
from checkpointing.rest.submission import Submission


class Read(dict[str, str]):
    """Settings that record which keys were read."""

    def __init__(self, **settings: str) -> None:
        super().__init__(settings)
        self.keys_read: set[str] = set()

    def __contains__(self, key: object) -> bool:
        self.keys_read.add(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
        self.keys_read.add(key)
        return super().get(key, default)


def test_the_known_keys_are_those_that_are_read() -> None:
    read = {ALLOW_EMPTY_START, DIRECTORY}
    for name in ("none", "fixed-delay", "failure-rate", "exponential-delay"):
        for key in ("restart-strategy", "restart-strategy.type"):
            settings = Read(**{key: name})
            restart_strategy(settings, lambda: 0.0)
            read |= settings.keys_read
    parsers: tuple[Callable[[Read], object], ...] = (
        CheckpointConfiguration.parse,
        StateRecovery.parse,
        local_recovery.is_enabled,
        local_recovery.declared_shared,
        refuses_to_write_again,
        python_of,
        EnvironmentSource.parse,
        priority_of,
        lambda settings: demand_of(settings, deployment_of({})),
        lambda settings: limit_of(settings, Demand(0)),
        lambda read: launcher_of(read, LauncherKind.PROCESS),
        lambda read: PodConfiguration.parse(read, "default", 1),
    )
    for parse in parsers:
        settings = Read(**{IMAGE: "jobs:1"})
        parse(settings)
        read |= settings.keys_read
    assert {key for key in read if is_checked(key)} == KNOWN_KEYS


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("execution.checkpointing.intervall", "the most similar key is execution.checkpointing.interval"),
        ("restart-strategy.fixed-delay.attemps", "the most similar key is restart-strategy.fixed-delay.attempts"),
        ("waymark.allow-emptystart", "the most similar key is waymark.allow-empty-start"),
        (
            "execution.checkpointing.unaligned.enabled",
            "the keys are execution.checkpointing.dir, ",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_the_known_ones(key: str, expected: str) -> None:
    with pytest.raises(UnknownKey) as refused:
        check_keys({"execution.checkpointing.interval": "10s", key: "1"})
    assert str(refused.value).startswith(f"{key}: a PySpark job has no such key; {expected}")
    assert isinstance(refused.value, InvalidConfiguration)


def test_keys_of_others_may_be_anything() -> None:
    check_keys({"spark.sql.shuffle.partitions": "4", "pipeline.name": "x", "state.backend.type": "rocksdb", "x": "y"})


def test_nothing_is_uploaded_for_a_misspelt_key() -> None:
    with pytest.raises(UnknownKey, match=r"the most similar key is execution\.checkpointing\.interval"):
        Submission.parse(
            "wordcount.py:wordcount",
            name=None,
            arguments=[],
            settings=["execution.checkpointing.intervall=10s"],
            parallelism=None,
            savepoint=None,
            allow_non_restored_state=False,
        )
