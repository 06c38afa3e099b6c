"""The job under fire. It writes each row once, although the input repeats rows. Spark's state has the known ids."""

import json
from pathlib import Path

from pyspark.sql import functions as sf

from checkpointing.sinks.files import FileSink
from checkpointing.sinks.postgres import PostgresSink


def to_postgres(spark, args):
    return unique_rows(spark, args).foreachBatch(postgres_sink(args))


def to_files(spark, args):
    return unique_rows(spark, args).foreachBatch(file_sink(args))


def to_both(spark, args):
    """Write each batch to two sinks. It is computed once, and persisted until both sinks have it."""
    postgres, files = postgres_sink(args), file_sink(args)

    def write(frame, batch):
        frame.persist()
        postgres(frame, batch)
        files(frame, batch)
        frame.unpersist()

    return unique_rows(spark, args).foreachBatch(write)


def unique_rows(spark, args):
    poison = Path(args["poison"])

    @sf.udf("boolean")
    def is_sound(_):
        """Raise an error once for each poison file."""
        if poison.exists():
            poison.unlink(missing_ok=True)
            raise ValueError("a poisoned row")
        return True

    rows = spark.readStream.schema("id long, word string").option("maxFilesPerTrigger", 200).json(args["input"])
    unique = rows.where(is_sound("id")).dropDuplicates(["id"])
    return unique.writeStream.queryName("unique").trigger(processingTime="200 milliseconds")


def postgres_sink(args):
    return PostgresSink(json.loads(Path(args["connections"]).read_text())["database"], args["table"])


def file_sink(args):
    return FileSink(args["output"], "json")
