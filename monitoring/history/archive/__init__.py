"""Old partitions as Parquet files: written, verified, and only then dropped; read back by pages and downloads.

- `kinds` what is archived, and how its columns are stored; `parquet` one file of it; `location` where files lie
- `spans` which stretch of time is next, what holds it back and how it is cut into files
- `writing` one file from a table's rows; `archiving` a span from its first file to the drop of its partitions
- `late` what comes for a day after that, and `counting` the day's roll-ups, made from the archive
- `needed` the few rows of a span that stay in PostgreSQL; `compaction` small files into one
- `reading` what pages are given of it; `cycle` what the periodic task does, `forget` and `check` of all files included
"""
