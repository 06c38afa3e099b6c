"""Kubernetes as a source of clusters: its credentials, its API, and the resources of the operators."""
