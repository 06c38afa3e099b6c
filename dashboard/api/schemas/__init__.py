"""The schemas of the API for each type of rows."""
