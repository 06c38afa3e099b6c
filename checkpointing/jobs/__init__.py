"""A job's life: its graph, its states, restart strategies, the dispatcher and the driver launcher."""
