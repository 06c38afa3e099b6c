"""A word count like wordcount.py that also records its environment: versions, variables, secrets."""

import json
import os
from importlib.metadata import version
from pathlib import Path


def counts(spark, args):
    output = Path(args["output"])
    names = [name for name in os.environ if name.startswith(("OWN_", "AWS_"))]
    packages = {name: version(name) for name in ("pyspark", "pandas")}
    (output / "surroundings").write_text(json.dumps({**packages, "variables": {n: os.environ[n] for n in names}}))

    words = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(args["input"])
    counted = words.groupBy("value").count()

    def write(frame, batch):
        rows = {row["value"]: row["count"] for row in frame.collect()}
        partial = output / f".{batch}"
        partial.write_text(json.dumps(rows))
        partial.rename(output / f"{batch:05}.json")

    return counted.writeStream.outputMode("update").queryName("words").foreachBatch(write)
