"""The job manager for PySpark jobs: coordinator, high availability, storage, drivers. Knows nothing of Django."""
