"""Find clusters by themselves: a source lists the deployments that it knows, and Waymark watches their clusters.

`found` has the values that a source reads, `reconciling` makes clusters of them, `rounds` runs the sources, and
`kubernetes` is a source.
"""
