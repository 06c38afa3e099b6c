"""Writes old partitions to Parquet files, verifies the files, and then drops the partitions. Pages read the files.

- `kinds`: the archived tables, and how their columns are stored; `parquet`: one file; `location`: where files are
- `spans`: which time range is archived next, what blocks it, and how it is divided into files
- `writing`: writes one file; `archiving`: moves a span, from its first file to the drop of its partitions
- `late`: adds checkpoints that arrive after that; `counting`: makes the day's roll-ups from the archive
- `needed`: the few rows of a span that stay in PostgreSQL; `compaction`: merges small files
- `reading`: reads rows for pages; `cycle`: the periodic task, with `forget` and `check` for all files
"""
