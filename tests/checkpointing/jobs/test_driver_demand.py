"""How much of the machine's memory a driver needs."""

from __future__ import annotations

import pytest

from checkpointing.jobs.launching.admission import Demand
from checkpointing.jobs.launching.demand import demand_of
from checkpointing.jobs.launching.deployment import deployment_of
from checkpointing.model.configuration import InvalidConfiguration

MIB = 2**20
ON_A_CLUSTER = {"spark.master": "spark://127.0.0.1:7077"}


def memory(**settings: str) -> int:
    """Return the memory demand in MiB. Underscores in the settings' names stand for dots."""
    demand = _demand({name.replace("_", "."): value for name, value in settings.items()})
    assert demand is not None
    return demand.memory // MIB


def _demand(configuration: dict[str, str], parallelism: int | None = None) -> Demand | None:
    return demand_of(configuration, deployment_of(configuration, parallelism=parallelism))


def test_a_job_that_sets_nothing_has_a_heap_an_overhead_and_two_workers() -> None:
    assert memory() == 768 + 384 + 2 * 128


def test_a_large_heap_has_a_tenth_as_overhead() -> None:
    assert memory(spark_driver_memory="10g") == 10240 + 1024 + 256


@pytest.mark.parametrize("text", ["2g", "2GB", "2048m", "2048mb", "2048", "2097152k", "2147483648b"])
def test_sizes_are_read_as_spark_reads_them(text: str) -> None:
    assert memory(spark_driver_memory=text) == 2048 + 384 + 256


def test_the_overhead_may_be_set() -> None:
    assert memory(spark_driver_memoryOverhead="100m") == 768 + 100 + 256
    assert memory(spark_driver_memory="10g", spark_driver_memoryOverheadFactor="0.4") == 10240 + 4096 + 256
    assert memory(spark_driver_minMemoryOverhead="500m") == 768 + 500 + 256


def test_each_task_that_runs_in_the_driver_has_a_worker() -> None:
    parallel = _demand({}, parallelism=8)

    assert parallel is not None
    assert parallel.memory // MIB == 768 + 384 + 8 * 128
    assert memory(spark_master="local[3, 2]") == 768 + 384 + 3 * 128
    assert memory(spark_master="local") == 768 + 384 + 128


def test_workers_on_a_cluster_use_no_memory_of_this_machine() -> None:
    demand = _demand(ON_A_CLUSTER)

    assert demand == Demand((768 + 384) * MIB)


def test_a_driver_in_the_cluster_needs_no_memory_of_this_machine() -> None:
    assert _demand({"spark.master": "yarn", "spark.submit.deployMode": "cluster"}) is None


def test_the_total_memory_can_be_set() -> None:
    assert memory(waymark_driver_memory="3gb", spark_driver_memory="1g") == 3072


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.driver.memory", "much"),
        ("spark.driver.memory", "0"),
        ("spark.driver.memory", "1.5g"),
        ("spark.driver.memory", "-1g"),
        ("spark.driver.memoryOverhead", "1x"),
        ("spark.driver.memoryOverheadFactor", "-0.1"),
        ("spark.driver.minMemoryOverhead", ""),
        ("waymark.driver.memory", "all"),
        ("waymark.driver.memory", "0"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(key: str, value: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        _demand({key: value})

    assert (refused.value.key, refused.value.value) == (key, value)
    assert refused.value.allowed
