"""Looking into the state of a job's snapshots: asked for on a page, answered by a worker in a process of its own."""
