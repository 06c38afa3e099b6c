"""From checkpoints that changed to roll-ups, for Spark: knows the database's tables and nothing of Django.

Spark's Python workers load it by itself, as a package of any name: hence the imports relative to it. They need numpy,
orjson, psycopg and pyarrow.
"""
