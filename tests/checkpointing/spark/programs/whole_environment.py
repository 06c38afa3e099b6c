"""A program that records the versions and variables of its driver and a Python worker, and runs an idle query."""

import json
import os
from importlib.metadata import version
from pathlib import Path

from pyspark.sql.functions import udf


def seen(_=None):
    versions = {name: version(name) for name in ("pyspark", "pandas")}
    return json.dumps({"versions": versions, "environ": dict(os.environ)})


def fails(spark, args):
    raise ValueError(f"the server refused {os.environ['FIRST_PASSWORD']}")


def looks(spark, args):
    worker = spark.range(1).select(udf(seen)("id").alias("seen")).collect()[0]["seen"]
    text = {"driver": json.loads(seen()), "worker": json.loads(worker), "ui": spark.sparkContext.uiWebUrl}
    partial = Path(args["output"]).with_suffix(".partial")
    partial.write_text(json.dumps(text))
    partial.rename(args["output"])
    rows = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
    return rows.writeStream.queryName("rows").format("noop")
