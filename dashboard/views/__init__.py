"""Views of the pages. Each view reads through dashboard.queries or calls one function of monitoring, and renders."""
