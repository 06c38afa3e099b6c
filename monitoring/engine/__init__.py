"""A typed client of Flink's REST API, and the rules for what an answer, or a missing answer, proves about a job."""
