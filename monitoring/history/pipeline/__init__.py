"""The PySpark job that makes roll-ups of checkpoints. It uses the database's tables, but not Django.

It is submitted as a zip in which this package is called `waymark_history` (packing.py), so its imports are relative.
Its Python workers need numpy, psycopg and pyarrow.
"""
