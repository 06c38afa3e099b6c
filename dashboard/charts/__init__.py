"""Plotly figures as plain dictionaries, built by pure functions from rows.

Figures have no colours. Each trace names its role in `meta.role`, and static/dashboard/js/charts.js sets the page's
colour for the role, light or dark.
"""
