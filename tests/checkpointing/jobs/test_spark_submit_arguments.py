"""The arguments, settings and files that spark-submit gets for each kind of cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from checkpointing.jobs.launching.deployment import Deployment, deployment_of
from checkpointing.jobs.launching.session_settings import WorkDirectory, session_settings
from checkpointing.jobs.launching.submission import (
    client_arguments,
    cluster_arguments,
    cluster_settings,
    kill_commands,
    properties_text,
)

JOB = "0123456789abcdef" * 2
CLUSTER = {"spark.submit.deployMode": "cluster"}
YARN = deployment_of({"spark.master": "yarn", **CLUSTER})
KUBERNETES = deployment_of({"spark.master": "k8s://https://kube.internal:6443", **CLUSTER})
SUBMIT = Path("/opt/spark/bin/spark-submit")


@pytest.mark.parametrize("master", ["local[2]", "spark://m1:7077", "yarn", "k8s://https://kube.internal:6443"])
def test_a_driver_here_has_spark_submit_start_its_jvm(master: str) -> None:
    arguments = client_arguments(deployment_of({"spark.master": master}), "word\ncount", Path("/w/spark.properties"))

    assert arguments == [
        *("--master", master, "--deploy-mode", "client", "--name", "word count"),
        *("--properties-file", "/w/spark.properties", "--load-spark-defaults", "pyspark-shell"),
    ]


@pytest.mark.parametrize(("deployment", "as_it_lies"), [(YARN, ""), (KUBERNETES, "local://")])
def test_a_driver_in_the_cluster_gets_its_package_and_the_path_of_its_specification(
    deployment: Deployment, as_it_lies: str
) -> None:
    """YARN's client sends the specification to the driver. A driver in a pod reads it from the shared storage."""
    arguments = cluster_arguments(
        deployment,
        "words",
        Path("/w/spark.properties"),
        package=Path("/w/checkpointing.zip"),
        main_script=Path("/p/submitted.py"),
        specification=Path("/w/driver.json"),
        py_files=["/w/wheels/lib.zip", "hdfs://names/more.zip"],
    )
    brought = f"{as_it_lies}/w/checkpointing.zip,{as_it_lies}/w/wheels/lib.zip,hdfs://names/more.zip"

    assert arguments == [
        *("--master", deployment.master, "--deploy-mode", "cluster", "--name", "words"),
        *("--properties-file", "/w/spark.properties", "--load-spark-defaults"),
        *("--py-files", brought, f"{as_it_lies}/p/submitted.py", "/w/driver.json"),
    ]


def test_the_cluster_never_starts_an_attempt_again_by_itself() -> None:
    settings = cluster_settings(YARN, JOB, 3, {"TZ": "UTC"})

    assert settings["spark.yarn.maxAppAttempts"] == "1"
    assert settings["spark.yarn.tags"] == f"waymark-{JOB}-3"
    assert settings["spark.yarn.appMasterEnv.TZ"] == "UTC"


def test_a_pod_is_named_after_its_attempt_within_the_length_of_a_dns_label() -> None:
    settings = cluster_settings(KUBERNETES, JOB, 123_456, {"TZ": "UTC"})

    assert settings["spark.kubernetes.driver.pod.name"] == f"waymark-{JOB}-123456"
    assert len(settings["spark.kubernetes.driver.pod.name"]) <= 63
    assert settings["spark.kubernetes.driverEnv.TZ"] == "UTC"


def test_an_application_is_ended_by_its_id_in_the_cluster() -> None:
    log = "Submitted application application_1700000000000_0007\nApplication report for application_1700000000000_0007"

    assert kill_commands(YARN, SUBMIT, JOB, 3, "default", log) == [
        ["yarn", "application", "-kill", "application_1700000000000_0007"]
    ]
    assert kill_commands(YARN, SUBMIT, JOB, 3, "default", "the client did not get that far") == []
    assert kill_commands(KUBERNETES, SUBMIT, JOB, 3, "streams", "") == [
        [str(SUBMIT), "--master", KUBERNETES.master, "--kill", f"streams:waymark-{JOB}-3"]
    ]
    assert kill_commands(deployment_of({"spark.master": "yarn"}), SUBMIT, JOB, 3, "default", "") == []


def settings(tmp_path: Path, **configuration: str) -> dict[str, str]:
    return session_settings(WorkDirectory(tmp_path), 3, {k.replace("__", "."): v for k, v in configuration.items()})


def test_parallelism_is_cores_and_state_partitions_on_one_machine_and_at_most_so_many_cores_of_a_cluster(
    tmp_path: Path,
) -> None:
    local = settings(tmp_path)
    standalone = settings(tmp_path, spark__master="spark://127.0.0.1:7077")
    yarn = settings(tmp_path, spark__master="yarn")

    assert (local["spark.master"], local["spark.sql.shuffle.partitions"]) == ("local[3]", "3")
    assert (standalone["spark.cores.max"], standalone["spark.sql.shuffle.partitions"]) == ("3", "3")
    assert "spark.cores.max" not in yarn


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_batches_have_priority_where_executors_upload_state(tmp_path: Path, mode: str) -> None:
    yarn = settings(tmp_path, spark__master="yarn", spark__submit__deployMode=mode)

    assert yarn["spark.scheduler.mode"] == "FAIR"
    assert yarn["spark.scheduler.allocation.file"] == f"file:{tmp_path}/pools.xml"
    assert "spark.scheduler.mode" not in settings(tmp_path)
    assert settings(tmp_path, spark__master="yarn", spark__scheduler__mode="FIFO")["spark.scheduler.mode"] == "FIFO"


def test_local_spark_listens_on_loopback_only(tmp_path: Path) -> None:
    for master in ("local[2]", "spark://127.0.0.1:7077"):
        there = settings(tmp_path, spark__master=master, spark__driver__host="elsewhere")
        assert (there["spark.driver.host"], there["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")
    remote = settings(tmp_path, spark__master="yarn", spark__driver__host="driver.internal")
    assert remote["spark.driver.host"] == "driver.internal"
    assert "spark.driver.bindAddress" not in remote
    assert "spark.local.dir" not in remote, "executors have no directory of that name"


@pytest.mark.parametrize(("timeout", "interval"), [("10 min", "10000ms"), ("8s", "2000ms"), ("10 ms", "100ms")])
def test_executors_report_several_times_within_a_checkpoints_timeout(
    tmp_path: Path, timeout: str, interval: str
) -> None:
    asked = {"execution__checkpointing__timeout": timeout}
    own = {"spark__executor__heartbeatInterval": "7s"}

    assert settings(tmp_path, **asked)["spark.executor.heartbeatInterval"] == interval
    assert settings(tmp_path, **asked, **own)["spark.executor.heartbeatInterval"] == "7s"


def test_the_jvm_options_of_a_job_are_added_to_the_defaults(tmp_path: Path) -> None:
    options = settings(tmp_path, spark__driver__extraJavaOptions="-Dmine=1")["spark.driver.extraJavaOptions"].split()

    assert "-Dmine=1" in options
    assert "-XX:+ExitOnOutOfMemoryError" in options


AWKWARD = {
    "spark.plain": "value",
    "spark.path": r"C:\new\table",
    "spark.lines": "one\ntwo\tthree",
    "spark.signs": "a=b:c#d!e",
    "spark.accents": "Zürich 東京",
    "spark.options": "-Da=1 -Db=2",
}
READER = """
import java.io.*; import java.nio.charset.StandardCharsets; import java.util.*;
public class ReadProperties {
  public static void main(String[] arguments) throws IOException {
    Properties read = new Properties();
    read.load(new InputStreamReader(new FileInputStream(arguments[0]), StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String key : new TreeSet<>(read.stringPropertyNames())) out.print(key + "\\0" + read.getProperty(key) + "\\0");
  }
}
"""


def test_java_reads_the_properties_back_as_they_were(tmp_path: Path, java_home: Path) -> None:
    if subprocess.run([java_home / "bin" / "java", "--describe-module", "jdk.compiler"], check=False).returncode:
        pytest.skip("this Java compiles no source file")
    (tmp_path / "spark.properties").write_text(properties_text(AWKWARD), encoding="utf-8")
    (tmp_path / "ReadProperties.java").write_text(READER)
    command = [java_home / "bin" / "java", tmp_path / "ReadProperties.java", tmp_path / "spark.properties"]
    read = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.decode().split("\0")[:-1]

    assert dict(zip(read[::2], read[1::2], strict=True)) == AWKWARD
