"""The life of a job: graph, status, restart strategies, the dispatcher and the launchers of drivers."""
