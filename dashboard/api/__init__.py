"""The REST API: the queries, forms and actions of the pages as JSON, with the same permissions."""
