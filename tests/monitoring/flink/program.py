"""Builder of jars with the tests' jobs. It compiles with Janino, which PySpark contains, so that no JDK is needed."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def compile_jobs(flink_home: Path, java_home: Path, directory: Path) -> Path:
    """Compile all jobs in this directory for that Flink, and return the directory of the classes."""
    classes = directory / "classes"
    classes.mkdir(parents=True)
    with _compiler(java_home) as gateway:
        _compile(gateway, sorted(HERE.glob("*.java")), sorted((flink_home / "lib").glob("*.jar")), classes)
    return classes


def packed(classes: Path, main: str, resources: Mapping[str, str] | None = None) -> bytes:
    """Return a jar of the classes, with `main` as its main class and the files `resources`."""
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nMain-Class: {main}\n")
        for name, text in (resources or {}).items():
            archive.writestr(name, text)
        for compiled in sorted(classes.iterdir()):
            archive.write(compiled, compiled.name)
    return jar.getvalue()


@contextmanager
def _compiler(java_home: Path) -> Iterator[Any]:
    """Yield the gateway of a JVM that has Janino."""
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
