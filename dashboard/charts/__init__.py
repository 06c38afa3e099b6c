"""Plotly figures as plain dictionaries, built by pure functions from rows.

Figures carry no colours: every trace says its role in `meta.role`, and static/dashboard/js/charts.js gives it the
page's colour for it, light or dark.
"""
