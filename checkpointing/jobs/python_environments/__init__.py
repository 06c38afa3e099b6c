"""Python environments that the job manager makes for jobs, from requirements or a packed archive, and caches."""
