"""The demo's jobs, written as a user would write them: ordinary PySpark, one file each, uploaded to the job manager."""
