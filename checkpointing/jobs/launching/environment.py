"""The environment of a user program: only allowed variables, because the job manager's own contains secrets."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from checkpointing.durable_files import make_directory
from checkpointing.jobs.launching.processes import write_private
from checkpointing.jobs.launching.python import has_own_python, in_own_python, python_of
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.storage.locations import scheme_of

# Variables that a program needs to run as its user, in the user's language and time zone, and to find libraries.
_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP", "TEMP"),
        *("LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CLASSPATH", "KUBECONFIG", "LIBHDFS_OPTS"),
        *("JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "MALLOC_ARENA_MAX"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    }
)
# Settings of Python, Spark and Hadoop.
_PREFIXES = (
    *("LC_", "PYTHON", "PYSPARK_", "SPARK_", "HADOOP_", "HDFS_", "YARN_", "HIVE_", "ARROW_", "KRB5", "KUBERNETES_"),
    *("OMP_", "OPENBLAS_", "MKL_", "XDG_"),
)
# Credentials for storage, among others. The program runs in the driver, which needs those of its checkpoint storage.
_OF_STORAGE = {
    **dict.fromkeys(("s3", "s3a"), ("AWS_*", "S3FS_*")),
    **dict.fromkeys(("gs", "gcs"), ("GOOGLE_*", "GCS_*", "CLOUDSDK_*", "GCSFS_*")),
    **dict.fromkeys(("abfs", "abfss", "az", "adl"), ("AZURE_*",)),
}
_PROXY = re.compile(r"(https?|ftp|all|no)_proxy", re.IGNORECASE)
_WAYMARKS_OWN = re.compile(r"WAYMARK_.*|DATABASE_URL(_FILE)?|REDIS_URL(_FILE)?|EMAIL_URL(_FILE)?")
_ENTRY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?")


def program_environment(environ: Mapping[str, str], more: Collection[str]) -> dict[str, str]:
    """Return the variables of `environ` that programs get. `more` names more variables; `MYAPP_*` is a prefix."""
    return {name: value for name, value in environ.items() if _is_allowed(name, more)}


def named_variables(environ: Mapping[str, str], more: Collection[str]) -> dict[str, str]:
    """Return the variables of `environ` that `more` names. A driver on another machine gets only these."""
    return {name: value for name, value in environ.items() if _is_named(name, more)}


def storage_variables(locations: Iterable[str]) -> Iterator[str]:
    """Yield the variables that drivers need for these storage locations, as entries of `more`."""
    for scheme in filter(None, map(scheme_of, locations)):
        yield from ("FSSPEC_*", *_OF_STORAGE.get(scheme, ()))


def process_environment(common: Mapping[str, str], temporary: Path, spec: DriverSpec) -> dict[str, str]:
    """Return the environment of a driver with its job's variables. `temporary` is the driver's own directory.

    The job's secret files are written below that directory and removed with it. Raise OSError.
    """
    job, files = spec.environment, {}
    for name, content in job.secret_files.items():
        make_directory(temporary / "secrets")
        files[f"{name}_FILE"] = str(write_private(temporary / "secrets" / name, content))
    if has_own_python(spec.configuration):
        common = in_own_python(common, python_of(spec.configuration), temporary / "waymark")
    return {**common, "TMPDIR": str(temporary), **job.variables, **job.secrets, **files}


def check_entry(entry: str) -> None:
    """Raise ValueError for an entry of `more` that is not a variable's name, or names a variable of Waymark."""
    if not _ENTRY.fullmatch(entry) or _WAYMARKS_OWN.fullmatch(entry.rstrip("*")):
        raise ValueError(entry)


def _is_allowed(name: str, more: Collection[str]) -> bool:
    if _WAYMARKS_OWN.fullmatch(name):
        return False
    if name in _NAMES or name.startswith(_PREFIXES) or _PROXY.fullmatch(name):
        return True
    return _is_named(name, more)


def _is_named(name: str, more: Collection[str]) -> bool:
    return any(name.startswith(entry[:-1]) if entry.endswith("*") else name == entry for entry in more)
