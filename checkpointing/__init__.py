"""The job manager for PySpark jobs: coordinator, high availability, storage, drivers. It does not import Django."""
