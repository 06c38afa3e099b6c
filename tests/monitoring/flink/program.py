"""Makes jars of the tests' own jobs. PySpark brings Janino, a compiler in two small jars: no JDK is needed."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def compile_job(flink_home: Path, java_home: Path, directory: Path) -> Path:
    """A jar of CountJob for that Flink, whose main class it names."""
    (jar,) = compile_jars(flink_home, java_home, directory, {"count": ("CountJob",)}).values()
    return jar


def compile_jars(
    flink_home: Path,
    java_home: Path,
    directory: Path,
    jars: Mapping[str, Iterable[str]],
    edits: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Path]:
    """By name: a jar of those classes, the last of them its main class. `edits`, by the jar's name: what is replaced
    in its sources, so that one job has several versions."""
    libraries = sorted((flink_home / "lib").glob("*.jar"))
    made = {}
    with _compiler(java_home) as gateway:
        for name, classes in jars.items():
            sources = [_source(directory / name, each, (edits or {}).get(name, {})) for each in classes]
            compiled = directory / name / "classes"
            compiled.mkdir()
            _compile(gateway, sources, libraries, compiled)
            made[name] = _packed(directory / f"{name}.jar", compiled, sources[-1].stem)
    return made


def _source(directory: Path, name: str, edits: Mapping[str, str]) -> Path:
    text = (HERE / f"{name}.java").read_text()
    for old, new in edits.items():
        text = text.replace(old, new)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.java"
    path.write_text(text)
    return path


def _packed(jar: Path, classes: Path, main: str) -> Path:
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nMain-Class: {main}\n")
        for compiled in sorted(classes.iterdir()):
            archive.write(compiled, compiled.name)
    return jar


@contextmanager
def _compiler(java_home: Path) -> Iterator[Any]:
    """A JVM with Janino in it."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    port, process = launch_gateway(
        jarpath=str(_spark_jar("py4j")),
        classpath=f"{_spark_jar('janino')}:{_spark_jar('commons-compiler')}",
        java_path=str(java_home / "bin" / "java"),
        die_on_exit=True,
        return_proc=True,
    )
    try:
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        yield gateway
        gateway.shutdown()
    finally:
        process.stdin.close()
        process.wait(10)


def _compile(gateway: Any, sources: list[Path], libraries: list[Path], classes: Path) -> None:
    compiler = gateway.jvm.org.codehaus.janino.Compiler()
    compiler.setClassPath(_files(gateway, libraries))
    compiler.setDestinationDirectory(gateway.jvm.java.io.File(str(classes)), False)
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.compile(_files(gateway, sources))


def _files(gateway: Any, paths: list[Path]) -> Any:
    file = gateway.jvm.java.io.File
    files = gateway.new_array(file, len(paths))
    for index, path in enumerate(paths):
        files[index] = file(str(path))
    return files


def _spark_jar(name: str) -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations
    (found,) = (Path(spec.submodule_search_locations[0]) / "jars").glob(f"{name}-[0-9]*.jar")
    return found
