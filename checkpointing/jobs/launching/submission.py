"""spark-submit's arguments, its properties file and its environment. Pure: nothing is started or written here.

Every setting goes through the properties file (mode 0600), none through the command line: settings may be secrets
(`spark.hadoop.fs.s3a.secret.key`), and a command line is for every user of the machine to read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from checkpointing.jobs.launching.deployment import ClusterManager, Deployment

PROPERTIES_NAME = "spark.properties"
_SHELL = "pyspark-shell"  # what spark-submit calls a JVM whose driver is the Python process that asked for it


def client_arguments(deployment: Deployment, name: str, properties_file: Path) -> list[str]:
    """For a driver that is a process of this machine: it has spark-submit start its JVM."""
    return [*_common(deployment, name, properties_file), _SHELL]


def cluster_arguments(
    deployment: Deployment,
    name: str,
    properties_file: Path,
    *,
    package: Path,
    main_script: Path,
    specification: Path,
    py_files: Sequence[str] = (),
) -> list[str]:
    """For a driver inside the cluster. `package` is a zip of this product's driver side, `py_files` are the job's own.

    The driver reads its specification where it lies: a file that is sent along would be a second copy, and a secret in
    its configuration would lie in the cluster's own staging directory.
    """
    brought = [_taken_along(deployment, package), *(_placed(deployment, file) for file in py_files)]
    return [
        *_common(deployment, name, properties_file),
        *("--py-files", ",".join(brought)),
        _taken_along(deployment, main_script),
        str(specification),
    ]


def _taken_along(deployment: Deployment, file: Path) -> str:
    """YARN's client sends files along; on Kubernetes there is nobody to send them to, and the pod reads them there."""
    return f"local://{file}" if deployment.manager is ClusterManager.KUBERNETES else str(file)


def _placed(deployment: Deployment, file: str) -> str:
    return _taken_along(deployment, Path(file)) if file.startswith("/") else file


def _common(deployment: Deployment, name: str, properties_file: Path) -> list[str]:
    place = ["--master", deployment.master, "--deploy-mode", deployment.mode.value, "--name", _one_line(name)]
    # What the installation's spark-defaults.conf says holds where the job says nothing.
    return [*place, "--properties-file", str(properties_file), "--load-spark-defaults"]


def cluster_settings(deployment: Deployment, job_id: str, attempt: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Settings that hold for a driver inside the cluster, whatever the job says.

    The cluster must never start a driver again by itself: attempts are the job manager's, one at a time. The names are
    how the attempt's application is found again to be killed.
    """
    match deployment.manager:
        case ClusterManager.YARN:
            return {
                "spark.yarn.maxAppAttempts": "1",
                "spark.yarn.tags": application_name(job_id, attempt),
                "spark.yarn.submit.waitAppCompletion": "true",
                **{f"spark.yarn.appMasterEnv.{name}": value for name, value in environ.items()},
            }
        case ClusterManager.KUBERNETES:
            return {
                "spark.kubernetes.driver.pod.name": application_name(job_id, attempt),
                "spark.kubernetes.submission.waitAppCompletion": "true",
                **{f"spark.kubernetes.driverEnv.{name}": value for name, value in environ.items()},
            }
        case _:
            return {}


def kill_commands(
    deployment: Deployment, spark_submit: Path, job_id: str, attempt: int, namespace: str, client_log: str
) -> list[list[str]]:
    """What ends the attempt's application in the cluster; empty when the client never got as far as to name one."""
    match deployment.manager:
        case ClusterManager.KUBERNETES:
            pod = f"{namespace}:{application_name(job_id, attempt)}"
            return [[str(spark_submit), "--master", deployment.master, "--kill", pod]]
        case ClusterManager.YARN:
            found = re.findall(r"\bapplication_\d+_\d+\b", client_log)
            return [["yarn", "application", "-kill", found[-1]]] if found else []
        case _:
            return []


def application_name(job_id: str, attempt: int) -> str:
    """Of the attempt's pod, and the tag of its YARN application: short enough for a DNS label (63)."""
    return f"waymark-{job_id}-{attempt}"


def properties_text(settings: Mapping[str, str]) -> str:
    """A file that `java.util.Properties` reads back as `settings`."""
    return "".join(f"{_escaped(key, is_key=True)}={_escaped(value)}\n" for key, value in sorted(settings.items()))


def _escaped(text: str, *, is_key: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if is_key:
        text = re.sub(r"([ :=#!])", r"\\\1", text)
    return "\\" + text if text.startswith(" ") else text


def _one_line(name: str) -> str:
    return " ".join(name.split()) or "job"
