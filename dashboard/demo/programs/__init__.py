"""The programs of the demo's jobs: ordinary PySpark, one file each, uploaded to the job manager."""
