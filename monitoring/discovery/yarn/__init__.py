"""Find clusters in YARN: Waymark polls the applications of the ResourceManager."""
