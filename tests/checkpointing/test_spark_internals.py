"""One module uses private API of PySpark. A driver refuses to start if PySpark lacks a part of this API."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from checkpointing import spark_internals
from checkpointing.clock import ManualClock
from checkpointing.jobs.launching.python import supported_pyspark
from checkpointing.jobs.launching.session_settings import WorkDirectory
from checkpointing.model.driver_spec import DriverSpec
from checkpointing.spark import session
from checkpointing.spark.driver import Driver
from checkpointing.spark_internals import UnsupportedPySpark, check

PACKAGE = Path(spark_internals.__file__).parent
STREAM = "org.apache.spark.sql.execution.streaming.runtime.StreamExecution"
WRITER = "org.apache.spark.sql.classic.DataStreamWriter"
NEEDED = {each.owner: each for each in spark_internals._JVM}


class Jvm:
    """A stand-in for Spark's JVM that has the needed API except `lacks`, the full names of classes and members."""

    def __init__(self, *lacks: str, streaming_packages: bool = True) -> None:
        self._lacks, self._streaming_packages = lacks, streaming_packages
        engine = SimpleNamespace(getMethod=lambda owner, name: name if self._has(owner.needed, name) else None)
        self.java = SimpleNamespace(lang=SimpleNamespace(Class=SimpleNamespace(forName=self._class)))
        self.py4j = SimpleNamespace(reflection=SimpleNamespace(ReflectionEngine=lambda: engine))

    def _class(self, name: str) -> Any:
        known = {name if self._streaming_packages else spark_internals._before_4_1(name): name for name in NEEDED}
        if name not in known or name in self._lacks:
            raise not_found()
        needed = NEEDED[known[name]]
        return SimpleNamespace(needed=needed, getDeclaredField=lambda name: self._field(needed, name))

    def _field(self, needed: Any, name: str) -> str:
        if not self._has(needed, name):
            raise not_found()
        return name

    def _has(self, needed: Any, name: str) -> bool:
        return f"{needed.owner}.{name}" not in self._lacks


def not_found() -> Py4JJavaError:
    return Py4JJavaError("ClassNotFoundException", SimpleNamespace(_target_id="o1"))


@pytest.fixture(autouse=True)
def _no_jvm_of_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the JVM was started by another process, unless the test uses Spark."""
    if "spark" not in request.fixturenames:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")


def session_of(jvm: Jvm) -> Any:
    return SimpleNamespace(_jvm=jvm)


def test_a_pyspark_with_the_needed_private_api_passes() -> None:
    check(session_of(Jvm()), "4.0 to 4.3")


def test_each_missing_class_and_member_is_named_in_one_error() -> None:
    jvm = Jvm(STREAM, f"{WRITER}.trigger", "org.apache.spark.SparkContext.statusStore")
    with pytest.raises(UnsupportedPySpark) as raised:
        check(session_of(jvm), "4.0 to 4.3")
    assert str(raised.value) == (
        f"PySpark {pyspark.__version__} lacks private API that Waymark uses: "
        f"org.apache.spark.SparkContext.statusStore, {WRITER}.trigger, {STREAM}. "
        "Install PySpark 4.0 to 4.3, which Waymark supports."
    )


def test_a_missing_attribute_of_python_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.streaming.StreamingQuery", type("StreamingQuery", (), {}))
    monkeypatch.delattr("pyspark.sql.utils.ForeachBatchFunction")
    monkeypatch.delattr("pyspark.sql.SparkSession.Builder")
    missing = "pyspark.sql.SparkSession.Builder, pyspark.sql.streaming.StreamingQuery._jsq, pyspark.sql.utils.Foreach"
    with pytest.raises(UnsupportedPySpark, match=re.escape(missing)):
        check(session_of(Jvm()), "4.0 to 4.3")


def test_a_jvm_whose_process_cannot_be_found_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    monkeypatch.setattr("pyspark.SparkContext._gateway", object())
    with pytest.raises(UnsupportedPySpark, match=r"pyspark\.SparkContext\._gateway\.proc"):
        check(session_of(Jvm()), "4.0 to 4.3")


def test_an_older_pyspark_may_lack_names_used_only_with_newer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")
    check(session_of(Jvm(spark_internals.INCREMENTAL_EXECUTION, streaming_packages=False)), "4.0 to 4.3")


@pytest.mark.spark
def test_the_installed_pyspark_has_the_needed_private_api(spark: Any) -> None:
    check(spark, supported_pyspark())


@pytest.mark.spark
def test_missing_spark_internals_are_named(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = (
        spark_internals._Needed("org.apache.spark.SparkContext", "statusStore statusStores"),
        spark_internals._Needed(WRITER, "trigger", fields="trigger toTable"),
        spark_internals._Needed("org.apache.spark.NoSuchClass", "apply"),
    )
    monkeypatch.setattr(spark_internals, "_JVM", needed)
    missing = f"uses: org.apache.spark.SparkContext.statusStores, {WRITER}.toTable, org.apache.spark.NoSuchClass. "
    with pytest.raises(UnsupportedPySpark, match=re.escape(missing)):
        check(spark, supported_pyspark())


class Builder:
    """A stand-in for `SparkSession.builder`, whose session lacks a class."""

    def appName(self, name: str) -> Builder:
        return self

    def config(self, key: str, value: str) -> Builder:
        return self

    def getOrCreate(self) -> Any:
        return session_of(Jvm(STREAM))


def test_a_session_is_not_handed_out_unchecked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_prepare_environment", lambda settings: None)
    monkeypatch.setattr(session.jvm, "launch", lambda name, settings, directory: None)
    monkeypatch.setattr(SparkSession, "builder", Builder())
    with pytest.raises(UnsupportedPySpark, match=re.escape(f"{STREAM}. Install PySpark {supported_pyspark()}")):
        session.start_session("job", {"spark.master": "local[1]"}, WorkDirectory(tmp_path))


def test_a_pyspark_that_lacks_private_api_is_not_retried(tmp_path: Path) -> None:
    spec = DriverSpec(
        "0" * 32, "job", 1, "p.py", "p:main", (), None, {}, str(tmp_path), "t", "http://127.0.0.1:9", 20.0
    )
    driver: Any = Driver(spec, ManualClock())
    info = driver._explain(UnsupportedPySpark("PySpark 5.0.0 lacks private API"))
    assert (info.name, info.recoverable) == ("UnsupportedPySpark", False)


def test_only_one_module_uses_private_api_of_pyspark_and_one_that_of_kazoo() -> None:
    """Ruff finds the use of private attributes. Only two modules are exempt, in pyproject.toml."""
    exempt = {"spark_internals.py", "ha/kazoo_internals.py"}
    sources = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}
    private_import = re.compile(r"^\s*from (?:pyspark|py4j|kazoo)\b.* import .*\b_\w", re.MULTILINE)
    assert {name for name, text in sources.items() if private_import.search(text)} <= exempt
    assert {name for name, text in sources.items() if "SLF001" in text} == {"storage/fsspec_files.py"}
