from __future__ import annotations

from pathlib import Path

import pytest

from checkpointing.ha.services import HighAvailabilityMode
from checkpointing.jobs.settings import DriversOnShutdown, InvalidSettings, JobManagerSettings
from checkpointing.model.zookeeper_access import ZooKeeperAccessFiles, ZooKeeperScheme


def test_nothing_set_means_loopback_and_no_high_availability() -> None:
    settings = JobManagerSettings.from_environ({"WAYMARK_VAR": "/data"})

    assert (settings.host, settings.port) == ("127.0.0.1", 8081)
    assert settings.high_availability is HighAvailabilityMode.NONE
    assert settings.state_directory == Path("/data/jobmanager")
    assert settings.drivers_on_shutdown is DriversOnShutdown.STOP
    assert (settings.heartbeat_interval_s, settings.heartbeat_timeout_s, settings.history_size) == (2.0, 20.0, 10)


def test_zookeeper_hosts_enable_high_availability() -> None:
    settings = JobManagerSettings.from_environ({"ZOOKEEPER_HOSTS": "127.0.0.1:2181"})

    assert settings.high_availability is HighAvailabilityMode.ZOOKEEPER


def test_all_problems_are_reported_together_with_variable_value_and_allowed_values() -> None:
    with pytest.raises(InvalidSettings) as error:
        JobManagerSettings.from_environ(
            {
                "WAYMARK_JOBMANAGER_PORT": "http",
                "WAYMARK_HIGH_AVAILABILITY": "maybe",
                "WAYMARK_HEARTBEAT_TIMEOUT": "1",
                "WAYMARK_DRIVERS_ON_SHUTDOWN": "kill",
                "WAYMARK_CHECKPOINT_HISTORY": "-1",
            }
        )

    assert error.value.problems == (
        "WAYMARK_JOBMANAGER_PORT: 'http' is not allowed; a whole number, at least 0, at most 65535",
        "WAYMARK_HIGH_AVAILABILITY: 'maybe' is not allowed; NONE or ZOOKEEPER",
        "WAYMARK_HEARTBEAT_TIMEOUT: 1 is not allowed; more than WAYMARK_HEARTBEAT_INTERVAL (2)",
        "WAYMARK_CHECKPOINT_HISTORY: -1 is not allowed; a whole number, at least 0",
        "WAYMARK_DRIVERS_ON_SHUTDOWN: 'kill' is not allowed; stop or leave",
    )


def test_zookeeper_mode_needs_hosts() -> None:
    with pytest.raises(InvalidSettings, match="ZOOKEEPER_HOSTS"):
        JobManagerSettings.from_environ({"WAYMARK_HIGH_AVAILABILITY": "zookeeper"})


def test_zookeeper_credentials_are_complete_or_refused(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("let-me-in\n")
    given = {
        "WAYMARK_ZOOKEEPER_AUTHENTICATION": "sasl",
        "WAYMARK_ZOOKEEPER_USERNAME": "waymark",
        "WAYMARK_ZOOKEEPER_PASSWORD_FILE": str(password),
    }
    access = JobManagerSettings.from_environ(given).zookeeper_access
    assert access == ZooKeeperAccessFiles(ZooKeeperScheme.SASL, "waymark", str(password))
    assert JobManagerSettings.from_environ({}).zookeeper_access is None
    with pytest.raises(InvalidSettings) as error:
        JobManagerSettings.from_environ(
            {
                "WAYMARK_ZOOKEEPER_AUTHENTICATION": "digest",
                "WAYMARK_ZOOKEEPER_TLS": "true",
                "WAYMARK_ZOOKEEPER_TLS_AUTHORITIES": str(password),
            }
        )
    assert error.value.problems[:2] == (
        "WAYMARK_ZOOKEEPER_USERNAME: '' is not allowed with WAYMARK_ZOOKEEPER_AUTHENTICATION=digest",
        "WAYMARK_ZOOKEEPER_PASSWORD: '' is not allowed with WAYMARK_ZOOKEEPER_AUTHENTICATION=digest",
    )
    assert error.value.problems[2].startswith("WAYMARK_ZOOKEEPER_TLS_…: not allowed; PEM files")


def test_the_token_may_be_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")

    settings = JobManagerSettings.from_environ({"WAYMARK_JOBMANAGER_TOKEN_FILE": str(file)})

    assert (settings.token, settings.token_file) == ("secret", file)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "jobmanager.example"])
def test_a_host_that_others_reach_needs_a_token(host: str) -> None:
    with pytest.raises(InvalidSettings, match=f"WAYMARK_JOBMANAGER_HOST: '{host}' is not allowed without"):
        JobManagerSettings.from_environ({"WAYMARK_JOBMANAGER_HOST": host})

    settings = JobManagerSettings.from_environ({"WAYMARK_JOBMANAGER_HOST": host, "WAYMARK_JOBMANAGER_TOKEN": "secret"})
    assert settings.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_host_needs_none(host: str) -> None:
    assert JobManagerSettings.from_environ({"WAYMARK_JOBMANAGER_HOST": host}).token is None


def test_a_token_file_without_a_token_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    with pytest.raises(InvalidSettings, match="a file that holds a token"):
        JobManagerSettings.from_environ({"WAYMARK_JOBMANAGER_TOKEN_FILE": str(tmp_path / "token")})


def test_further_hosts_are_names_without_a_scheme() -> None:
    settings = JobManagerSettings.from_environ({"WAYMARK_JOBMANAGER_HOSTS": "Flink.example, ui.example:8443,"})
    assert settings.more_hosts == ("flink.example", "ui.example:8443")
    for wrong in ("http://flink.example", "*", "a b", "flink.example:port"):
        with pytest.raises(InvalidSettings, match="WAYMARK_JOBMANAGER_HOSTS: "):
            JobManagerSettings.from_environ({"WAYMARK_JOBMANAGER_HOSTS": wrong})


def test_a_token_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="WAYMARK_JOBMANAGER_TOKEN_FILE"):
        JobManagerSettings.from_environ({"WAYMARK_JOBMANAGER_TOKEN_FILE": str(tmp_path / "none")})


def test_checkpoints_may_be_restored_from_but_not_written_to_as_savepoints(tmp_path: Path) -> None:
    settings = JobManagerSettings.from_environ(
        {"WAYMARK_VAR": str(tmp_path), "WAYMARK_SAVEPOINT_ROOTS": f"{tmp_path}/a, {tmp_path}/b"}
    )

    writable = settings.savepoint_roots.roots
    assert writable == (f"{tmp_path}/jobmanager/savepoints", f"{tmp_path}/a", f"{tmp_path}/b")
    assert settings.restore_roots.roots == (*writable, f"{tmp_path}/jobmanager/checkpoints")


def test_the_settings_of_drivers_and_spares_are_checked() -> None:
    settings = JobManagerSettings.from_environ(
        {
            "SPARK_MASTER_URL": "spark://m1:7077,m2:7077",
            "WAYMARK_SHARED_STORAGE": "True",
            "WAYMARK_SPARE_DRIVERS": "2",
        }
    )
    assert (settings.spark_master, settings.storage_is_shared) == ("spark://m1:7077,m2:7077", True)
    assert settings.spare_drivers == 2

    with pytest.raises(InvalidSettings) as error:
        JobManagerSettings.from_environ(
            {"SPARK_MASTER_URL": "m1:7077", "WAYMARK_SHARED_STORAGE": "yes", "WAYMARK_SPARE_DRIVERS": "-1"}
        )
    assert error.value.problems == (
        "SPARK_MASTER_URL: 'm1:7077' is not allowed; write local[n], spark://host:port, yarn or k8s://https://host:port",
        "WAYMARK_SHARED_STORAGE: 'yes' is not allowed; true or false",
        "WAYMARK_SPARE_DRIVERS: -1 is not allowed; a whole number, at least 0",
    )


def test_driver_limits_are_derived_from_the_machine_unless_set() -> None:
    unset = JobManagerSettings.from_environ({})
    assert (unset.driver_memory, unset.driver_limit, unset.driver_starts) == (None, None, None)

    given = {"WAYMARK_DRIVER_MEMORY": "12gb", "WAYMARK_DRIVER_LIMIT": "0", "WAYMARK_DRIVER_STARTS": "3"}
    settings = JobManagerSettings.from_environ(given)
    assert (settings.driver_memory, settings.driver_limit, settings.driver_starts) == (12 * 2**30, 0, 3)


def test_wrong_limits_of_drivers_are_problems() -> None:
    with pytest.raises(InvalidSettings) as error:
        JobManagerSettings.from_environ(
            {"WAYMARK_DRIVER_MEMORY": "all", "WAYMARK_DRIVER_LIMIT": "-1", "WAYMARK_DRIVER_STARTS": "0"}
        )
    assert error.value.problems == (
        "WAYMARK_DRIVER_MEMORY: 'all' is not allowed; write a whole number and a unit: b, kb, mb, gb or tb",
        "WAYMARK_DRIVER_LIMIT: -1 is not allowed; a whole number, at least 0",
        "WAYMARK_DRIVER_STARTS: 0 is not allowed; a whole number, at least 1",
    )
