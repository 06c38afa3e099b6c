"""Use a Kubernetes API: credentials, kinds of resources, requests, and what the Flink operator is asked to do."""
