"""Makes the jar of the tests' own job. PySpark brings Janino, a compiler in two small jars: no JDK is needed."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

SOURCE = Path(__file__).with_name("CountJob.java")


def compile_job(flink_home: Path, java_home: Path, directory: Path) -> Path:
    """A jar of CountJob for that Flink, whose main class it names."""
    classes = directory / "classes"
    classes.mkdir(parents=True)
    _compile(SOURCE, sorted((flink_home / "lib").glob("*.jar")), classes, java_home)
    jar = directory / "count.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nMain-Class: {SOURCE.stem}\n")
        for compiled in sorted(classes.iterdir()):
            archive.write(compiled, compiled.name)
    return jar


def _compile(source: Path, libraries: list[Path], classes: Path, java_home: Path) -> None:
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
        file = gateway.jvm.java.io.File
        files = gateway.new_array(file, len(libraries))
        for index, library in enumerate(libraries):
            files[index] = file(str(library))
        compiler = gateway.jvm.org.codehaus.janino.Compiler()
        compiler.setClassPath(files)
        compiler.setDestinationDirectory(file(str(classes)), False)
        compiler.setSourceVersion(8)
        compiler.setTargetVersion(8)
        sources = gateway.new_array(file, 1)
        sources[0] = file(str(source))
        compiler.compile(sources)
        gateway.shutdown()
    finally:
        process.stdin.close()
        process.wait(10)


def _spark_jar(name: str) -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations
    (found,) = (Path(spec.submodule_search_locations[0]) / "jars").glob(f"{name}-[0-9]*.jar")
    return found
