"""Spark's first example: count the words of all lines so far, and write the whole table with each batch."""

from pyspark.sql.functions import explode, split


def program(spark, args):
    lines = spark.readStream.format("text").load(args["input"])
    words = lines.select(explode(split(lines.value, " ")).alias("word"))
    word_counts = words.groupBy("word").count()

    def write(frame, batch_id):
        frame.write.mode("overwrite").json(args["output"])

    return word_counts.writeStream.queryName("word_count").outputMode("complete").foreachBatch(write)
