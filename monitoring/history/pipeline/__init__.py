"""The job that makes roll-ups of checkpoints, for Spark: knows the database's tables and nothing of Django.

It is a job like any other, submitted as a zip in which this package is called `waymark_history` (packing.py): hence
the imports relative to it. Its Python workers need numpy, orjson, psycopg and pyarrow.
"""
