"""The configuration as YAML: an export in a stable order, a plan of the changes, and all of them or none applied.

One module per kind of thing (a Section) reads its entries with the forms of the pages, so both have the same checks.
"""
