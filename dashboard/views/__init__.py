"""The views of the pages: each view reads by dashboard.queries or calls one function of monitoring, and renders."""
