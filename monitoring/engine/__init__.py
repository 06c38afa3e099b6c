"""The engines' side: one typed client of Flink's REST API, and what an answer (or none) proves of a job."""
