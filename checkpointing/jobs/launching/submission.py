"""The arguments, the properties file and the environment of spark-submit. Pure: nothing is started or written here.

Every setting goes into the properties file (mode 0600) and none into the command line. Settings may be secrets
(`spark.hadoop.fs.s3a.secret.key`), and every user of the machine can read a command line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from checkpointing.jobs.launching.deployment import ClusterManager, Deployment

PROPERTIES_NAME = "spark.properties"
_SHELL = "pyspark-shell"  # spark-submit's name for a JVM whose driver is the Python process that called it


def client_arguments(deployment: Deployment, name: str, properties_file: Path) -> list[str]:
    """Return the arguments for a driver that is a process of this machine, whose JVM spark-submit starts."""
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
    """Return the arguments for a driver inside the cluster.

    `package` is a zip file of Waymark's part of the driver, and `py_files` belong to the job. The driver reads its
    specification at its original path. A copy sent to the cluster would put the configuration's secrets into the
    cluster's staging directory.
    """
    brought = [_file_argument(deployment, package), *(_python_file_argument(deployment, file) for file in py_files)]
    return [
        *_common(deployment, name, properties_file),
        *("--py-files", ",".join(brought)),
        _file_argument(deployment, main_script),
        str(specification),
    ]


def _file_argument(deployment: Deployment, file: Path) -> str:
    """Return the file as an argument.

    YARN's client sends files to the cluster; on Kubernetes the pod reads them by path.
    """
    return f"local://{file}" if deployment.manager is ClusterManager.KUBERNETES else str(file)


def _python_file_argument(deployment: Deployment, file: str) -> str:
    return _file_argument(deployment, Path(file)) if file.startswith("/") else file


def _common(deployment: Deployment, name: str, properties_file: Path) -> list[str]:
    place = ["--master", deployment.master, "--deploy-mode", deployment.mode.value, "--name", _one_line(name)]
    # The installation's spark-defaults.conf applies to settings that the job does not set.
    return [*place, "--properties-file", str(properties_file), "--load-spark-defaults"]


def cluster_settings(deployment: Deployment, job_id: str, attempt: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Return settings that apply to a driver inside the cluster and override the job's.

    The cluster must never restart a driver by itself, because the job manager starts the attempts one at a time. The
    names serve to find the attempt's application and kill it.
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
    """Return the commands that end the attempt's application in the cluster; empty if the client never named it."""
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
    """Return the name of the attempt's pod and the tag of its YARN application. It fits into a DNS label (63)."""
    return f"waymark-{job_id}-{attempt}"


def properties_text(settings: Mapping[str, str]) -> str:
    """Return the text of a file that `java.util.Properties` reads back as `settings`."""
    return "".join(f"{_escaped(key, is_key=True)}={_escaped(value)}\n" for key, value in sorted(settings.items()))


def _escaped(text: str, *, is_key: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    if is_key:
        text = re.sub(r"([ :=#!])", r"\\\1", text)
    return "\\" + text if text.startswith(" ") else text


def _one_line(name: str) -> str:
    return " ".join(name.split()) or "job"
