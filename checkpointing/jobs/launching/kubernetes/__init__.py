"""Run drivers as pods of a Kubernetes cluster."""
